# Programs and modules of older releases beside this version's SQL, and the reverse: whichever is
# older, nobody is called by a worker that the SQL does not know, no job is lost, and a call that was
# under way when the extension was updated is settled.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../e2e/lib";
use LlmqTest;
use Test::More;

my %stage_of = map { split /=/, $_, 2 } split ' ', $ENV{LLMQ_OLDER_RELEASES} // die "LLMQ_OLDER_RELEASES is not set\n";
my $provider = start_provider();

sub script_folder { my ($stage) = @_; return $stage . LlmqTest::Cluster::config('sharedir') . '/extension' }

sub calls { return scalar(my @calls = $provider->calls(@_)) }

# Runs the llmq-worker of a stage until it ends by itself.
sub run_worker
{
	my ($pg, $stage, @args) = @_;
	local $ENV{LLMQ_STAGE} = $stage;
	my $program = start_program($pg, args => [ '--poll-interval', '0.2', @args ]);
	return ($program->exit_code, $program->log_text);
}

sub test_older_program
{
	my ($release, $stage) = @_;
	my $pg = start_cluster(preload => 1, conf => { 'llmq.workers' => 0 });
	$pg->create_database('app', extension => 1, provider => $provider);
	my $job = $pg->submit(prompt => "Hello. [job:program-$release]", idempotency_key => 'key');

	my ($code, $log) = run_worker($pg, $stage);
	is($code, 3, "a program of $release ends with 3 beside this SQL, which tells whoever keeps it running that it is outdated");
	like($log, qr/speaks protocol/, "a program of $release logs that it speaks another protocol");
	is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$job'"), 'ready', "a job that a program of $release saw is ready still");
	is(calls("program-$release"), 0, "a program of $release makes no call beside this SQL");

	($code) = run_worker($pg, $ENV{LLMQ_STAGE}, '--once');
	is($code, 0, "this version's program ends well after one of $release");
	is($pg->final_state($job, 30)->{state}, 'succeeded', "this version's program runs the job that one of $release left");
	$pg->check;
	$pg->stop;
	return;
}

# The server has the module of the release, whose scripts stand beside this version's.
sub test_older_module
{
	my ($release, $stage) = @_;
	my $both = test_dir() . "/both-$release";
	LlmqTest::Cluster::run('cp', '-a', $stage, $both);
	LlmqTest::Cluster::run('cp', glob(script_folder($ENV{LLMQ_STAGE}) . '/llmq*'), script_folder($both));
	my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '200ms', LlmqTest::Cluster::stage_settings($both) });
	$pg->create_database('app');
	$pg->sql("CREATE EXTENSION llmq VERSION '$release'");
	$pg->endpoint(main => $provider);
	$provider->script({ match => "[job:held-$release]", responses => [ { hold => "held-$release", text => 'at last' } ] });
	my $held = $pg->submit(prompt => "Hold on. [job:held-$release]", idempotency_key => 'held',
		policy => { call_timeout => '100 s', deadline => '110 s' });
	$provider->wait_for_calls("held-$release", 1);

	my $update = $pg->query('ALTER EXTENSION llmq UPDATE');
	if ($update->{sqlstate} ne '00000')
	{
		like($update->{err}, qr/could not find function|restart/, "an update that the module of $release cannot serve says what is missing");
		is($pg->sql(q{SELECT extversion FROM pg_extension WHERE extname = 'llmq'}), $release, "the update from $release was rolled back as a whole");
	}
	else
	{
		wait_for(sub { $pg->sql('SELECT state FROM llmq.worker') eq 'outdated' }, 30, "the worker of $release is outdated");
		pass("a worker of $release that runs during the update is outdated after it");
	}
	my $later = $pg->submit(prompt => "Later. [job:later-$release]", idempotency_key => 'later');
	$provider->release("held-$release");
	is($pg->final_state($held, 30)->{state}, 'succeeded', "a call that the module of $release had under way is settled after the update");
	is(calls("held-$release"), 1, "a call that the module of $release had under way is not made twice");

	# The module of this version, as after an upgrade of packages and a restart.
	$pg->stop;
	$pg->set(LlmqTest::Cluster::stage_settings($ENV{LLMQ_STAGE}));
	$pg->start;
	$pg->query('ALTER EXTENSION llmq UPDATE');
	is($pg->final_state($later, 30)->{state}, 'succeeded', "a job that was submitted beside the module of $release runs after a restart");
	is(calls("later-$release"), 1, "a job that was submitted beside the module of $release is called once");
	$pg->check;
	$pg->stop;
	return;
}

# This version's program and SQL of the release.
sub test_older_sql
{
	my ($release, $stage) = @_;
	my $pg = start_cluster(preload => 1, conf => { 'llmq.workers' => 0, LlmqTest::Cluster::stage_settings($stage) });
	$pg->create_database('app');
	$pg->sql("CREATE EXTENSION llmq VERSION '$release'");
	$pg->endpoint(main => $provider);
	my $job = $pg->submit(prompt => "Hello. [job:sql-$release]", idempotency_key => 'key');
	my ($code, $log) = run_worker($pg, $ENV{LLMQ_STAGE});
	is($code, 3, "this version's program ends with 3 beside the SQL of $release");
	like($log, qr/ALTER EXTENSION llmq UPDATE/, "this version's program says beside the SQL of $release what helps");
	is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$job'"), 'ready', "a job of $release is left alone by this version's program");
	is(calls("sql-$release"), 0, "this version's program makes no call beside the SQL of $release");
	$pg->disconnect_all;
	$pg->stop;
	return;
}

for my $release (sort keys %stage_of)
{
	test_older_program($release, $stage_of{$release}) if -x $stage_of{$release} . LlmqTest::Cluster::config('bindir') . '/llmq-worker';
	test_older_module($release, $stage_of{$release});
	test_older_sql($release, $stage_of{$release});
}

finish();
