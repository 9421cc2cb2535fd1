# What only newer majors have: a limit on whole transactions, and a queue of notifications that is small enough to fill.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

plan(skip_all => 'transaction_timeout and max_notify_queue_pages came with 17') if LlmqTest::Cluster::major() < 17;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { max_notify_queue_pages => 64, 'llmq.poll_interval' => '500 ms' });
$pg->create_database('app', extension => 1, provider => $provider);

# -- transaction_timeout -----------------------------------------------------------------------------------

$pg->sql(q{ALTER DATABASE app SET transaction_timeout = '200 ms'});
$pg->disconnect_all;
my @before = split /\n/, $pg->sql(q{SELECT pid FROM pg_stat_activity WHERE datname = 'app' AND pid <> pg_backend_pid()}, 'postgres');
$pg->sql("SELECT pg_terminate_backend($_)", 'postgres') for @before;
wait_for(sub { @before == grep { is_gone($_) } @before }, 20, 'worker and callback worker have ended');
my $worker = $pg->wait_for_worker;
$pg->sql(q{SET transaction_timeout = 0;
	CREATE TABLE told (job_id uuid);
	CREATE FUNCTION slowly(answer jsonb) RETURNS void LANGUAGE sql
		AS $$ SELECT pg_sleep(0.5); INSERT INTO told VALUES ((answer ->> 'job_id')::uuid) $$;
	CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$;
	CREATE TRIGGER dawdle BEFORE INSERT ON llmq.result FOR EACH ROW EXECUTE FUNCTION dawdle()});
my $job = $pg->submit(prompt => 'Go. [job:slow]', idempotency_key => 'slow', on_complete => 'slowly');
is($pg->final_state($job, 60)->{state}, 'succeeded', 'a settle may take longer than the transaction_timeout of the database');
wait_for(sub { $pg->sql('SELECT count(*) FROM told') == 1 }, 30, 'on_complete may too');
is($pg->wait_for_worker, $worker, 'the worker is the same');
unlike($pg->log_text, qr/terminating connection due to transaction timeout/, 'nothing was ended by the limit');
is(scalar($provider->calls('slow')), 1, 'one call was made');
$pg->sql('DROP TRIGGER dawdle ON llmq.result');
$pg->sql('ALTER DATABASE app RESET transaction_timeout');
$pg->disconnect_all;

# -- a full queue of notifications ------------------------------------------------------------------------

$pg->insert('queue', name => 'told', notify_done => 't');
$pg->sql('SELECT llmq_internal.note_listeners(true)');
$pg->insert('destination', topic => 'tell', kind => 'notify', url => 'app_events', max_attempts => 1);
my $listener = $pg->session('app');
$listener->query('LISTEN app_events; LISTEN llmq_done');
my $sleeper = $pg->session('app');
$sleeper->query('LISTEN anything; BEGIN');
$sleeper->query('SELECT 1');
my $filler = $pg->session('app');
my $said = '';
for (1 .. 200)
{
	$said = $filler->query(q{SELECT pg_notify('anything', repeat('x', 7900))})->{err};
	last if $said =~ /ERROR/;
}
like($said, qr/too many notifications in the NOTIFY queue/, 'the queue of notifications is full');

$job = $pg->submit(prompt => 'Go. [job:full]', idempotency_key => 'full', queue => 'told');
is($pg->final_state($job, 60)->{state}, 'succeeded', 'a job can be submitted and settled meanwhile, though there is somebody to tell');
is(scalar($provider->calls('full')), 1, 'with one call');
my $id = $pg->sql(q{SELECT llmq.enqueue_outbox('tell', '{}', 'tell')});
$job = $pg->submit(prompt => 'Go. [job:more]', idempotency_key => 'more', queue => 'told');
is($pg->final_state($job, 60)->{state}, 'succeeded', 'another one too');
is($pg->sql("SELECT coalesce(sent_at, dead_at) IS NULL AND last_error IS NULL FROM llmq.outbox WHERE id = $id"), 't',
	'a message for a channel waits, and has not failed');

$sleeper->query('ROLLBACK');
wait_for(sub { $pg->sql("SELECT sent_at IS NOT NULL FROM llmq.outbox WHERE id = $id") eq 't' }, 60, 'the message is sent when there is room');
$job = $pg->submit(prompt => 'Go. [job:told]', idempotency_key => 'told', queue => 'told');
$pg->final_state($job, 60);
my $told = '';
wait_for(sub { $told .= $listener->query('SELECT 1')->{out}; $told =~ /"llmq_done" with payload "$job"/ }, 20, 'who listens is told of jobs again');
unlike($told, qr/"llmq_done".*"llmq_done"/s, 'and was told of none that ended meanwhile');

finish();
