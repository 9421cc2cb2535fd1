# Bad rows and bad neighbours: the job concerned waits or dies with a reason to read, the others run
# on, and the log says it once.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '300ms' });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;

my $count = 0;
sub calls { return scalar(my @calls = $provider->calls(@_)) }

# A good job runs, whatever else is wrong.
sub others_run
{
	my ($beside) = @_;
	my $name = 'good-' . ++$count;
	is($pg->final_state($pg->submit(prompt => "Good. [job:$name]", idempotency_key => $name))->{state}, 'succeeded', "others run beside $beside");
	is(calls($name), 1, 'with one call');
	return;
}

sub wait_reason
{
	my ($job, $reason) = @_;
	wait_for(sub { $pg->sql("SELECT state || ' ' || coalesce(wait_reason, '') FROM llmq.job_status WHERE job_id = '$job'") eq "ready $reason" }, 10, $reason);
	is($pg->sql("SELECT deliveries || ' ' || attempts FROM llmq.job_status WHERE job_id = '$job'"), '0 0', "$reason: no delivery, no attempt");
	return;
}

# -- configuration that is not there ------------------------------------------------

$pg->insert('queue', name => 'empty', endpoints => '{}');
my $job = $pg->submit(prompt => 'Nowhere. [job:nowhere]', idempotency_key => 'nowhere', queue => 'empty');
wait_reason($job, 'no_endpoint');
others_run('a queue without endpoints');
$pg->endpoint(second => $provider);
$pg->sql("UPDATE llmq.queue SET endpoints = '{second}' WHERE name = 'empty'");
is($pg->final_state($job)->{state}, 'succeeded', 'with an endpoint it runs');

$provider->script({ match => '[job:orphan]', responses => [ { status => 500 }, {} ] });
$pg->endpoint(third => $provider);
$pg->insert('queue', name => 'orphans', endpoints => '{third}');
$job = $pg->submit(prompt => 'Orphan. [job:orphan]', idempotency_key => 'orphan', queue => 'orphans', policy => { backoff_base => '5 s' });
$provider->wait_for_calls('orphan', 1);
$pg->sql("DELETE FROM llmq.endpoint WHERE name = 'third'");
wait_for(sub { $pg->sql("SELECT coalesce(wait_reason, '') FROM llmq.job_status WHERE job_id = '$job'") eq 'no_endpoint' }, 20, 'the job is back in the queue');
pass('a job whose endpoint is deleted under it goes back to wait');
others_run('an endpoint that was deleted');
$pg->endpoint(third => $provider);
is($pg->final_state($job)->{state}, 'succeeded', 'and runs when there is one again');

$job = $pg->submit(prompt => 'Lost. [job:lost]', idempotency_key => 'lost', queue => 'orphans', run_at => '2100-01-01');
$pg->sql("UPDATE llmq.deferred SET due_at = now() WHERE job_id = '$job'; DELETE FROM llmq.queue WHERE name = 'orphans'");
wait_reason($job, 'no_queue');
others_run('a queue that was deleted');
$pg->sql("SELECT llmq.cancel('$job')");

# -- users' own objects on our tables --------------------------------------------------

$pg->sql(<<'SQL');
CREATE TABLE public.mine (job_id uuid REFERENCES llmq.job (job_id));
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.text LIKE '%poison%' THEN RAISE EXCEPTION 'not this one'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON llmq.result FOR EACH ROW EXECUTE FUNCTION public.refuse();
SQL
my @good = map { $pg->submit(prompt => "Beside. [job:beside-$_]", idempotency_key => "beside-$_") } 1 .. 5;
$provider->script({ match => '[job:poison]', responses => [ { text => 'poison' } ] });
$job = $pg->submit(prompt => 'Poison. [job:poison]', idempotency_key => 'poison', outbox => [ { topic => 'sad', payload => {}, on => 'dead' } ]);
is($pg->final_state($_)->{state}, 'succeeded', 'a neighbour of a row that cannot be stored settles') for @good;
my $status = $pg->final_state($job, 60);
is("$status->{state} $status->{error_class}", 'dead internal', 'the row that cannot be stored goes dead, alone');
like($status->{error_message}, qr/not this one/, 'with a reason to read');
is(calls('poison'), 1, 'after one call: what was paid for once is not paid for again');
is($pg->sql("SELECT string_agg(topic, ' ') FROM llmq.outbox WHERE job_id = '$job'"), 'sad', 'and its death has its message');
my @said = grep { /WARNING:.*not this one/i } split /\n/, $pg->log_text;
ok(@said >= 1 && @said <= 4, 'the log says it a few times, not each time it is tried') or diag("@said");
is(scalar(grep { /job $job goes dead: the answer could not be stored/ } @said), 1, 'and once that the job goes dead for it');
others_run('a failing trigger');

my ($referenced) = @good;
$pg->sql("INSERT INTO public.mine VALUES ('$referenced')");
$pg->sql("UPDATE llmq.result SET created_at = now() - interval '60 days'");
cmp_ok($pg->sql('SELECT llmq.prune()'), '>=', 5, "a user's foreign key stops no deletion but that of its own job");
is($pg->sql('SELECT job_id FROM llmq.result WHERE created_at < now() - interval \'30 days\''), $referenced, 'which stays');
others_run("a user's foreign key");
$pg->sql('DROP TABLE public.mine');
is($pg->sql('SELECT llmq.prune()'), 1, 'until nothing refers to it');

# -- settings of roles and databases ------------------------------------------------------

my $free = $pg->session;
$free->query('SELECT 1');		# connected before there are such settings, it is free of them
$pg->sql("ALTER DATABASE app SET $_") for 'statement_timeout = 1', 'lock_timeout = 1', 'default_transaction_read_only = on',
	"default_transaction_isolation = 'serializable'", "search_path = 'public'", 'idle_in_transaction_session_timeout = 1';
$pg->sql('ALTER ROLE postgres SET statement_timeout = 1');
my $worker = $pg->wait_for_worker;
$free->query("SELECT pg_terminate_backend($worker)");
$job = $free->query("SELECT job_id FROM llmq.submit('Settings. [job:settings]', 'settings')")->{out};
wait_for(sub { $free->query("SELECT state FROM llmq.job_status WHERE job_id = '$job'")->{out} eq 'succeeded' }, 30, 'the job succeeds');
is(calls('settings'), 1, "timeouts and read-only defaults of roles and databases are not the worker's");
$free->query('ALTER ROLE postgres RESET statement_timeout');
$free->query('ALTER DATABASE app RESET ALL');

finish();
