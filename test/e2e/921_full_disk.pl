# A full disk: the server's data are on a small file system, which is filled up.  Clients hear what is
# wrong, the worker keeps the answers that it has paid for, and all goes on when there is room again.
#
# The file system is a tmpfs in a mount namespace of this test's own.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use Fcntl;
use LlmqTest;
use Test::More;

use constant SIZE => '160m';
use constant MANY => 30;

# Starts this test again, where $LLMQ_SMALL_DISK is a file system of its own; returns why it cannot be.
sub enter_namespace
{
	my $mount = test_dir() . '/disk';
	mkdir $mount or die "$mount: $!\n";
	my $own = 'mount -t tmpfs -o size=' . SIZE . ' none "$1"';
	return 'no mount namespace to be had here' if system "unshare -rm sh -c '$own' sh $mount 2>/dev/null";
	my $status = system 'unshare', '-rm', 'sh', '-c', "$own && shift && exec \"\$\@\"", 'sh', $mount,
	  'unshare', '--user', "--map-user=$<", '--map-group=' . ($( + 0), 'env', "LLMQ_SMALL_DISK=$mount", $^X, $0;
	LlmqTest::leave(1);
	POSIX::_exit($status ? 1 : 0);
}

if (!$ENV{LLMQ_SMALL_DISK})
{
	my $reason = enter_namespace();
	plan(skip_all => $reason);
}

my $disk = $ENV{LLMQ_SMALL_DISK};
my $provider = start_provider();
my $pg = new_cluster(preload => 1, conf => { max_wal_size => '64MB', min_wal_size => '64MB', wal_recycle => 'on', autovacuum => 'off', restart_after_crash => 'on' });
rename_to_disk();
$pg->start;
$pg->create_database('app', extension => 1, provider => $provider);
my $worker = $pg->wait_for_worker;

sub rename_to_disk
{
	LlmqTest::Cluster::run('mv', $pg->{data}, "$disk/data");
	symlink "$disk/data", $pg->{data} or die "symlink: $!\n";
	return;
}

# Takes all room that is left, but for what the log of changes has already.
sub fill
{
	sysopen(my $file, "$disk/filler", O_WRONLY | O_CREAT | O_APPEND) or die "filler: $!\n";
	my $size = 1 << 16;
	while ($size > 1)
	{
		$size >>= 1 unless syswrite $file, "\0" x $size;
	}
	return;
}

sub make_room { unlink "$disk/filler" or die "filler: $!\n"; return }

# Segments of the log are there beforehand, so that it is the tables that find no room.
$pg->sql('SELECT pg_switch_wal(); CHECKPOINT') for 1 .. 3;
$provider->script({ match => '[job:held-', responses => [ { hold => 'held', text_repeat => [ 'A long answer. ', 5000 ] } ] });
my @jobs = map { $pg->submit(prompt => "Go. [job:held-$_]", idempotency_key => "held-$_") } 1 .. MANY;
wait_for(sub { MANY == grep { $_->{job} =~ /^held-/ } $provider->calls }, 30, 'all are called');
fill();

my $turned_away;
for my $number (1 .. 1000)
{
	$turned_away = $pg->query('SELECT llmq.submit(' . LlmqTest::Cluster::literal('x' x 2000) . ", 'filling-$number')");
	last if ($turned_away->{sqlstate} // '') ne '00000';
}
is($turned_away->{sqlstate}, '53100', 'with a full disk a submit is refused as such');
like($turned_away->{err}, qr/No space left on device.*HINT:  Check free disk space/s, 'and says what to look for');
my $from = $pg->log_size;
$provider->release('held');
ok(wait_for(sub { $pg->log_text($from) =~ /(?:llmq worker|warning): .*No space left on device/ }, 60, 'the worker meets the full disk'), 'the worker says that it cannot write its answers');
ok($pg->is_running, 'the server still runs');
is($pg->sql(q{SELECT count(*) FROM llmq.dead_job}), 0, 'no job is given up for it');
make_room();
is_deeply([ map { $pg->final_state($_, 60)->{state} } @jobs ], [ ('succeeded') x MANY ], 'when there is room again the answers are written');
is(scalar(grep { $_->{job} =~ /^held-/ } $provider->calls), MANY, 'those of the calls that were made, once');
is($pg->wait_for_worker, $worker, 'by the same worker');
is($pg->final_state($pg->submit(prompt => 'Go.', idempotency_key => 'after'), 60)->{state}, 'succeeded', 'and new jobs are done');

finish();
