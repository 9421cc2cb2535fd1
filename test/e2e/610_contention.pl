# A user's open transaction has locked a job: the worker neither waits for it nor runs in circles,
# and no other job notices.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;
my $other = $pg->session('app');

sub open_cancel { my ($job) = @_; $other->query('BEGIN'); $other->query("SELECT llmq.cancel('$job')"); return }
sub state_of { my ($job) = @_; return $pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$job'") }

# -- running ----------------------------------------------------------------------

$provider->script({ match => '[job:held-', responses => [ { hold => 'held' } ] });
my @jobs = map { $pg->submit(prompt => "Hold on. [job:held-$_]", idempotency_key => "held-$_") } 1 .. 10;
$provider->wait_for_calls("held-$_", 1) for 1 .. 10;
my $log = $pg->log_size;
open_cancel($jobs[0]);
$provider->release('held');
is($pg->final_state($_)->{state}, 'succeeded', 'an answer is stored while another one must wait') for @jobs[ 1 .. 9 ];
wait_for(sub { ($provider->calls('held-1'))[0]{how} }, 20, 'the locked job is answered too');
is($pg->final_state($pg->submit(prompt => "More. [job:more-$_]", idempotency_key => "more-$_"))->{state}, 'succeeded',
	'so is one that came later') for 1 .. 3;
is(state_of($jobs[0]), 'running', 'the locked job is running meanwhile');
$other->query('ROLLBACK');
is($pg->final_state($jobs[0])->{state}, 'succeeded', 'when it is let go, its answer is stored');
is(scalar(my @calls = $provider->calls('held-1')), 1, 'the one that was there already');
unlike($pg->log_text($log), qr/WARNING/, 'and nothing failed');

$provider->script({ match => '[job:late]', responses => [ { hold => 'late' } ] });
my $job = $pg->submit(prompt => 'Too late. [job:late]', idempotency_key => 'late');
$provider->wait_for_calls('late', 1);
open_cancel($job);
$provider->release('late');
wait_for(sub { ($provider->calls('late'))[0]{how} }, 20, 'it is answered');
$other->query('COMMIT');
is($pg->final_state($job)->{state}, 'cancelled', 'a cancel that commits before the answer is stored stands');
wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.attempt WHERE job_id = '$job' AND attempt = 1") }, 20, 'the attempt is recorded');
is($pg->sql("SELECT string_agg(attempt || ' ' || outcome, ', ') FROM llmq.attempt WHERE job_id = '$job'"), '1 success', 'its call is on record');

# -- the key of a message -------------------------------------------------------------

$provider->script({ match => '[job:keyed-', responses => [ { hold => 'keyed' } ] });
@jobs = map {
	$pg->submit(prompt => "Tell. [job:keyed-$_]", idempotency_key => "keyed-$_", outbox => [ { topic => 'told', dedupe_key => "told $_" } ])
} 1 .. 10;
$provider->wait_for_calls("keyed-$_", 1) for 1 .. 10;
$other->query('BEGIN');
$other->query("SELECT llmq.enqueue_outbox('told', '{}', 'told 1')");
$provider->release('keyed');
is($pg->final_state($_)->{state}, 'succeeded', 'an answer is stored while the key of another one\'s message is held') for @jobs[ 1 .. 9 ];
is($pg->final_state($pg->submit(prompt => "More. [job:beside-$_]", idempotency_key => "beside-$_"))->{state}, 'succeeded',
	'so is one that came later') for 1 .. 3;
is(state_of($jobs[0]), 'running', 'the one whose key is held is running meanwhile');
$other->query('COMMIT');
is($pg->final_state($jobs[0])->{state}, 'succeeded', 'when the key is let go, its answer is stored');
is(scalar(@calls = $provider->calls('keyed-1')), 1, 'of one call');
is($pg->sql(q{SELECT count(*) FROM llmq.outbox WHERE topic = 'told'}), 10, 'and the message that has the key stands for its own');

# -- due ----------------------------------------------------------------------------

$job = $pg->submit(prompt => 'Later. [job:due]', idempotency_key => 'due', run_at => '2100-01-01');
$pg->sql("UPDATE llmq.deferred SET due_at = clock_timestamp() + interval '1 s' WHERE job_id = '$job'");
open_cancel($job);
$pg->sql("SELECT pg_sleep(1.5)");
sub transactions { $pg->sql('SELECT pg_stat_clear_snapshot()'); return $pg->sql("SELECT xact_commit FROM pg_stat_database WHERE datname = 'app'") }
my $before = transactions();
$pg->sql('SELECT pg_sleep(3)');
cmp_ok(transactions() - $before, '<', 150, 'a job that is due and locked is looked at now and then');
$other->query('ROLLBACK');
is($pg->final_state($job)->{state}, 'succeeded', 'and runs when it is let go');

# -- while it moves -------------------------------------------------------------------

$pg->stop_workers;
my $id = $other->query("SELECT worker_id FROM llmq.worker_hello(3, 'by hand', 'server', pg_backend_pid(), NULL)")->{out};
$job = $pg->submit(prompt => 'Moves. [job:moves]', idempotency_key => 'moves');
$other->query("SELECT count(*) FROM llmq.worker_claim($id, ARRAY(SELECT seq FROM llmq.ready))");
is(state_of($job), 'running', 'a job is claimed by hand');
$other->query('BEGIN');
$other->query(qq{SELECT * FROM llmq.worker_settle($id, '[{"job_id": "$job", "delivery": 1, "outcome": "retry", "counted": true,
	"delay": 3600000000, "error_class": "timeout", "attempts": []}]')});
my $third = $pg->session('app');
$third->send("SELECT llmq.cancel('$job')");
wait_for(sub { $pg->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted}) }, 20, 'the cancel waits');
$other->query('COMMIT');
is($third->result->{out}, 't', 'a cancel finds a job that was put back before its eyes');
is(state_of($job), 'cancelled', 'which is cancelled');

# -- one of a batch ---------------------------------------------------------------------

my ($locked, $free) = map { $pg->submit(prompt => "Both. [job:$_]", idempotency_key => $_) } 'locked', 'free';
$other->query("SELECT count(*) FROM llmq.worker_claim($id, ARRAY(SELECT seq FROM llmq.ready))");
$third->query('BEGIN');
$third->query("SELECT llmq.cancel('$locked')");
$other->query(q{SET lock_timeout = '100ms'});
my $entries = join ', ', map { qq{{"job_id": "$_", "delivery": 1, "outcome": "retry", "counted": true, "delay": 0, "attempts": []}} } $locked, $free;
is($other->query("SELECT string_agg(verdict, ' ' ORDER BY job_id <> '$locked') FROM llmq.worker_settle($id, '[$entries]')")->{out},
	'busy settled', 'a settle waits for no lock, and does what it can');
$other->query("SELECT llmq.worker_goodbye($id)");
is(state_of($locked) . ' ' . $pg->sql("SELECT count(*) FROM llmq.worker_session WHERE id = $id"), 'running 1',
	'nor does a goodbye, which leaves that lease, and the session, to a takeover');
$third->query('COMMIT');
is(state_of($locked), 'cancelled', 'unless it is cancelled');

finish();
