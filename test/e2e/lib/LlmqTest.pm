# LlmqTest - what every end-to-end test stands on.
#
#     use FindBin; use lib "$FindBin::Bin/lib";
#     use LlmqTest;
#     my $provider = start_provider();
#     my $pg = start_cluster(preload => 1);
#     my $db = $pg->create_database('app', extension => 1);
#     ...
#     finish();
#
# Everything lives in one fresh folder: servers listen on sockets in it, providers on ports that the
# kernel picks, so that many tests run side by side.  Whatever way a test ends, its processes are
# ended by their ids and the folder is removed.  There is no sleep for hope: wait_for() looks until
# something holds, and gives up after a limit.

package LlmqTest;

use strict;
use warnings;

use Exporter 'import';
use File::Temp ();
use List::Util qw(max min);
use Test::More;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC sleep);

use LlmqTest::Cluster;
use LlmqTest::Host;
use LlmqTest::Program;
use LlmqTest::Provider;
use LlmqTest::Receiver;

our @EXPORT = qw(start_provider start_receiver start_cluster new_cluster start_program start_host wait_for now seconds finish test_dir is_gone);

# A test that has not ended by then hangs.
use constant LIMIT => $ENV{LLMQ_TEST_LIMIT} || 240;

# How long wait_for() waits between two looks, in seconds: a tenth of what it has waited so far, within these
# bounds.  A look may count thousands of rows, and takes that time from what it waits for.
use constant { LOOK_AFTER => 0.02, LOOK_WITHIN => 0.1 };

my $owner = $$;
my @things;
my $dir = File::Temp->newdir('llmq-e2e-XXXXXX', TMPDIR => 1);

$SIG{ALRM} = sub { die 'the test has run for ' . LIMIT . " s and was stopped\n" };
$SIG{$_} = sub { exit 1 } for qw(INT TERM HUP);
$SIG{PIPE} = 'IGNORE';
alarm LIMIT;

# Names the folder of this test.
sub test_dir { return "$dir" }

# Returns the time in seconds, by the clock that the provider's log uses.
sub now { return clock_gettime(CLOCK_MONOTONIC) }

# Turns a time of the provider's log (nanoseconds) into seconds.
sub seconds { return $_[0] / 1e9 }

# Calls $check until it returns something true, and returns that.  Dies after $limit seconds.
sub wait_for
{
	my ($check, $limit, $name) = @_;
	my $began = now();
	while (1)
	{
		my $value = $check->();
		return $value if $value;
		my $waited = now() - $began;
		die "waited $limit s in vain: $name\n" if $waited > $limit;
		sleep min(LOOK_WITHIN, max(LOOK_AFTER, $waited / 10));
	}
}

# Tells whether a process, ours or not, has ended; one that waits to be reaped has.
sub is_gone
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return 1;
	return (<$file> // '') =~ /\) [ZX] / ? 1 : 0;
}

# Starts a provider.  Options: token, host (its address), args (a list for provider.py).
sub start_provider
{
	my (%options) = @_;
	my $provider = LlmqTest::Provider->new("$dir/provider" . @things, %options);
	push @things, $provider;
	$provider->start;
	return $provider;
}

# Starts a receiver of outbox messages, a program of test/receive.
sub start_receiver
{
	my ($program, @args) = @_;
	my $receiver = LlmqTest::Receiver->new("$dir/receiver" . @things, $program, @args);
	push @things, $receiver;
	$receiver->start;
	return $receiver;
}

# Makes a server that is not started.  Options: preload (true for shared_preload_libraries), conf (a
# hash of settings).
sub new_cluster
{
	my (%options) = @_;
	my $cluster = LlmqTest::Cluster->new("$dir/pg" . @things, %options);
	push @things, $cluster;
	return $cluster;
}

sub start_cluster
{
	my $cluster = new_cluster(@_);
	$cluster->start;
	return $cluster;
}

# Starts an llmq-worker for a cluster.  Options: name, args (a list), conninfo, wrap, log.
sub start_program
{
	my ($cluster, %options) = @_;
	my $number = @things;
	my $name = $options{name} // "program-$number";
	my $program = LlmqTest::Program->new(
		name     => $name,
		log      => $options{log} // "$dir/program$number",
		wrap     => $options{wrap},
		conninfo => $options{conninfo} // $cluster->conninfo,
		args     => [ '--name', $name, '--secrets-directory', $cluster->socket_dir . '/secrets', @{ $options{args} // [] } ]);
	push @things, $program;
	return $program;
}

# Starts a host with a network of its own; the test has entered one (LlmqTest::Host).
sub start_host
{
	my $host = LlmqTest::Host->new("$dir/host" . @things);
	push @things, $host;
	return $host;
}

# Ends a test: no database of a running server has a broken invariant, and no process is left.
sub finish
{
	$_->check for grep { $_->isa('LlmqTest::Cluster') && $_->is_running } @things;
	leave(Test::More->builder->is_passing);
	alarm 0;
	done_testing();
	return;
}

# Stops everything that was started here; if things did not go well, with its last words.
sub leave
{
	my ($good) = @_;
	$good or diag($_->last_words) for @things;
	eval { $_->stop; 1 } or warn $@ for reverse splice @things;
	return;
}

END
{
	if ($$ == $owner)
	{
		my $status = $?;
		local $SIG{TERM} = 'IGNORE';
		alarm 0;
		leave(Test::More->builder->is_passing && !$status);
		$? = $status;
	}
}

1;
