# Databases that go on elsewhere: a replica that is promoted under load, asynchronous or synchronous, is the
# same database and goes on by itself; a cluster after pg_upgrade is another, and calls nobody until it is told.
# (Dumps and templates: 210_life.pl.)

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

use constant MANY => 200;

my $provider = start_provider();

# Makes a replica of a running server and starts it.
sub start_replica
{
	my ($primary) = @_;
	my $replica = new_cluster(preload => 1);
	LlmqTest::Cluster::run('rm', '-rf', $replica->{data});
	LlmqTest::Cluster::run(LlmqTest::Cluster::program('pg_basebackup'), '-h', $primary->socket_dir, '-p', 5432, '-U', 'postgres', '-D', $replica->{data},
		'--checkpoint', 'fast', '-X', 'stream', '-R');
	$replica->set(unix_socket_directories => $replica->socket_dir, primary_conninfo => "host=@{[ $primary->socket_dir ]} port=5432 user=postgres",
		synchronous_standby_names => '', 'llmq.secrets_directory' => $replica->socket_dir . '/secrets');
	$replica->start;
	$replica->use_database('app');
	$replica->start_programs if $replica->has_programs;
	return $replica;
}

# -- a replica that is promoted --------------------------------------------------------------------------

for my $kind (qw(asynchronous synchronous))
{
	my $primary = start_cluster(preload => 1);
	$primary->create_database('app', extension => 1, provider => $provider);
	$primary->wait_for_worker;
	my $replica = start_replica($primary);
	if ($kind eq 'synchronous')
	{
		$primary->set(synchronous_standby_names => '*');
		$primary->reload;
	}
	wait_for(sub { $primary->sql('SELECT count(*) FROM pg_stat_replication WHERE state = $$streaming$$' . ($kind eq 'synchronous' ? ' AND sync_state = $$sync$$' : '')) == 1 },
		20, 'the replica follows');
	$provider->script({ match => "[job:$kind-", responses => [ { delay_ms => 100 } ] });
	$primary->insert('queue', name => $kind, max_in_flight => 10, redelivery_base => '10 ms', redelivery_cap => '50 ms', max_deliveries => 100);
	my @committed = map { $primary->submit(prompt => "Go. [job:$kind-$_]", idempotency_key => "$kind-$_", queue => $kind, outbox => [ { topic => 'mail' } ]) } 1 .. MANY;
	wait_for(sub { $primary->sql('SELECT count(*) FROM llmq.result') >= 20 }, 30, 'some jobs are done');
	is(scalar(my @none = $replica->workers), 0, "$kind: no worker runs on the replica");
	is($replica->sql('SELECT pg_is_in_recovery()'), 't', "$kind: which is one");
	isnt($replica->query(q{SELECT llmq.submit('Go.', 'there')})->{sqlstate}, '00000', "$kind: and takes no jobs");

	$primary->stop('immediate');
	is($replica->sql('SELECT pg_promote()'), 't', "$kind: the replica is promoted");
	my $began = now();
	$replica->wait_for_worker;
	note(sprintf '%s: a worker runs %.1f s after the promotion', $kind, now() - $began);
	is($replica->sql("SELECT job_id FROM llmq.submit('Go.', 'after')") ne '', 1, "$kind: it takes jobs now");
	ok(wait_for(sub { $replica->sql("SELECT count(*) FROM llmq.job_status WHERE state <> 'succeeded'") == 0 }, 60, 'all are done'), "$kind: and does all that it has");
	my $kept = $replica->sql("SELECT count(*) FROM llmq.job WHERE queue = '$kind'");
	$kind eq 'synchronous' ? is($kept, MANY, "$kind: every committed job is there") : cmp_ok($kept, '<=', MANY, "$kind: no more jobs than were submitted");
	is($replica->sql("SELECT count(*) FROM llmq.outbox WHERE topic = 'mail'"), $kept, "$kind: each has its message");
	is($replica->sql('SELECT count(*) FROM llmq.job AS j WHERE ('
		. 'SELECT count(*) FROM llmq.attempt AS a WHERE a.job_id = j.job_id AND a.attempt > 0) <> 1'), 0, "$kind: each has the one attempt that it remembers");
	$replica->check;
	$replica->stop;
}

# -- a cluster after pg_upgrade ----------------------------------------------------------------------------

# From the same major version, or from an older one that is there too (test/majors/run).
my %older = $ENV{LLMQ_OLDER_PG_CONFIG} ? (pg_config => $ENV{LLMQ_OLDER_PG_CONFIG}, stage => $ENV{LLMQ_OLDER_STAGE}) :
  (pg_config => $LlmqTest::Cluster::pg_config, stage => $ENV{LLMQ_STAGE});
delete local $ENV{LLMQ_INITDB};		# servers from one template would be one system
my ($old, $old_bin, $job);
{
	local $LlmqTest::Cluster::pg_config = $older{pg_config};
	local $ENV{LLMQ_STAGE} = $older{stage};
	$old_bin = LlmqTest::Cluster::config('bindir');
	$old = start_cluster(preload => 1);
	note($old->sql('SHOW server_version'));
	$old->create_database('app', extension => 1, provider => $provider);
	$old->wait_for_worker;
	is($old->final_state($old->submit(prompt => 'Go.', idempotency_key => 'before'))->{state}, 'succeeded', 'before the upgrade: jobs are done');
	$provider->script({ match => '[job:moved]', responses => [ { hold => 'moved' } ] });
	$job = $old->submit(prompt => 'Go. [job:moved]', idempotency_key => 'moved');
	$provider->wait_for_calls('moved', 1);
	$old->stop('fast');
}
my $new = new_cluster(preload => 1);
# pg_upgrade to 18 and later looks for the library nowhere but where test/majors/run has installed it.
$new->set(dynamic_library_path => '$libdir') if LlmqTest::Cluster::major() >= 18;
chdir test_dir() or die 'chdir: ' . test_dir() . ": $!\n";
my $bin = LlmqTest::Cluster::config('bindir');
LlmqTest::Cluster::run(LlmqTest::Cluster::preload(), "$bin/pg_upgrade", '-b', $old_bin, '-B', $bin, '-d', $old->{data}, '-D', $new->{data}, '-U', 'postgres', '--socketdir', test_dir());
chdir '/' or die "chdir: $!\n";
my $calls = scalar(my @before = $provider->calls);
$new->start;
$new->use_database('app');
$new->start_programs if $new->has_programs;
ok(wait_for(sub { $new->sql('SELECT string_agg(state, $$ $$) FROM llmq.worker') eq 'quarantined' }, 30, 'the worker is in quarantine'),
	'after pg_upgrade the worker is in quarantine');
like($new->log_text, qr/this worker makes no calls: .*resume_after_restore/s, 'and the log says so, and what to do');
is($new->sql("SELECT state FROM llmq.job_status JOIN llmq.job USING (job_id) WHERE idempotency_key = 'before'"),
	'succeeded', 'what was done is done');
is(scalar(my @still = $provider->calls), $calls, 'no call is made');
$new->sql('SELECT llmq.resume_after_restore()');
$provider->release('moved');
is($new->final_state($job, 40)->{state}, 'succeeded', 'told to, it does what was left');
is($new->final_state($new->submit(prompt => 'Go.', idempotency_key => 'after'))->{state}, 'succeeded', 'and new jobs');

finish();
