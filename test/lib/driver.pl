# The driver that test/run starts as the user who may run PostgreSQL, in a copy of the tree: one
# server for the pgTAP files, then all tests under one prove, then an end of all processes.  What runs
# side by side there stands in test/testrules.yml.

use strict;
use warnings;

use LlmqTest::Cluster;
use LlmqTest;

# What HOST=program leaves out, and why: what these are about is in the server alone.
my %server_only = (
	'200_kill_matrix' => 'stops the worker at debug points of the module; 810 and 830 do the like to programs',
	'210_life'        => 'is about the launcher, llmq.workers, start_worker, and stepping aside for DROP DATABASE',
	'240_idle'        => 'counts what a process of the server uses, and prepares transactions, which NOTIFY forbids',
	'610_callback'    => 'stops the callback worker, which is always in the server, and the worker at debug points of the module',
	'630_relay_kills' => 'stops the relay at debug points of the module');

my @files = @ARGV ? @ARGV : map { sort glob $_ } 'build/unit/*_test', 'test/pgtap/*.sql', 'test/e2e/*.pl';
@files = grep { runs_here($_) } @files if ($ENV{HOST} // '') eq 'program';
@files or die "there are no tests\n";

alarm 0;	# each file has a limit of its own

$ENV{LLMQ_INITDB} = test_dir() . '/initdb';
LlmqTest::Cluster::init_data($ENV{LLMQ_INITDB});

my @pgtap;
if (grep { /\.sql\z/ } @files)
{
	my $pg = start_cluster(preload => 1);
	$pg->create_database('pgtap', extension => 1);
	$pg->sql('CREATE EXTENSION pgtap');
	$pg->disconnect_all;
	my %option = (suffix => '.sql', psql => limited_psql(), host => $pg->socket_dir, port => 5432,
		username => 'postgres', dbname => 'pgtap');
	@pgtap = ('--source', 'pgTAP', map { ('--pgtap-option', "$_=$option{$_}") } sort keys %option);
}

my @command = ('prove', '--source', 'Limited', '--limited-option', "seconds=$ENV{LLMQ_TEST_LIMIT}", @pgtap,
	'--jobs', $ENV{LLMQ_TEST_JOBS}, split(' ', $ENV{PROVE_FLAGS}), @files);
my $prove = fork // die "fork: $!\n";
if ($prove == 0)
{
	$SIG{$_} = 'DEFAULT' for qw(INT TERM HUP ALRM PIPE);
	$ENV{PERL5LIB} = 'test/lib';		# for prove's own handlers
	$ENV{HARNESS_RULESFILE} = 'test/testrules.yml';
	exec(@command) or POSIX::_exit(127);
}

# Orphans come to us (reaper.py); reap them as they end, and in the end make them end.
my $status;
until (defined $status)
{
	my $pid = wait;
	$status = $? if $pid == $prove;
}
LlmqTest::leave(1);
my @left = orphans();
warn "still running after the tests, ended now: @left\n" if @left;
exit($status >> 8 || ($status ? 1 : 0));

sub runs_here
{
	my ($file) = @_;
	my ($name) = $file =~ m{([^/]+)\.pl\z};
	my $reason = $server_only{ $name // '' };
	print "$file is left out: it $reason\n" if $reason;
	return !$reason;
}

# Returns the process ids of our children.
sub orphans
{
	open(my $file, '<', "/proc/$$/task/$$/children") or return ();
	return grep { !is_gone($_) } split ' ', <$file> // '';
}

# Writes a psql that gives up after the limit of one file, and returns its path.
sub limited_psql
{
	my $path = test_dir() . '/psql';
	open(my $file, '>', $path) or die "$path: $!\n";
	print {$file} "#!/bin/sh\nexec timeout --kill-after=20 $ENV{LLMQ_TEST_LIMIT} ", LlmqTest::Cluster::program('psql'), " \"\$\@\"\n";
	close $file;
	chmod 0755, $path;
	return $path;
}

# However this ends, what a test left running ends too.  A killed parent's children become ours.
END
{
	local $?;
	while (my @pids = orphans())
	{
		kill 'KILL', @pids;
		wait for @pids;
	}
}
