# Settling that fails: the answer was paid for, so it stays in hand and only the settling is tried
# again.  One call at the provider, whatever the database does.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use List::Util qw(max);
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;

# What the tests count must survive a rollback: a sequence does.
$pg->sql('CREATE SEQUENCE tries');

sub submit
{
	my ($name, %more) = @_;
	return $pg->submit(prompt => "Do it. [job:$name]", idempotency_key => $name, outbox => [ { topic => 'mail', payload => {} } ], %more);
}

sub tries { return $pg->sql('SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tries') }

# Puts a trigger on a table that raises $sqlstate while $condition, in which NEW is the row; deferred,
# it does so when the transaction commits.
sub raise
{
	my ($table, $sqlstate, $condition, $deferred) = @_;
	my $kind = $deferred ? 'CONSTRAINT TRIGGER meddle AFTER' : 'TRIGGER meddle BEFORE';
	my $when = $deferred ? 'DEFERRABLE INITIALLY DEFERRED' : '';
	$pg->sql("ALTER SEQUENCE tries RESTART;
		CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
			IF $condition THEN RAISE EXCEPTION 'the user''s trigger says no' USING ERRCODE = '$sqlstate'; END IF;
			RETURN NEW;
		END \$\$;
		CREATE $kind INSERT ON llmq.$table $when FOR EACH ROW EXECUTE FUNCTION meddle()");
	return;
}

sub let_be { $pg->sql('DROP FUNCTION meddle() CASCADE'); return }

# Tests that a job ended well, with one call, one result, one message.
sub is_done_once
{
	my ($job, $name) = @_;
	my $status = $pg->final_state($job, 40);
	is("$status->{state} $status->{deliveries} $status->{attempts}", 'succeeded 1 1', "$name: the job succeeds in its first delivery and attempt");
	is(scalar(my @calls = $provider->calls($name)), 1, "$name: the provider was called once");
	is($pg->sql("SELECT count(*) FROM llmq.outbox WHERE job_id = '$job'"), 1, "$name: there is one message");
	return;
}

# -- a lock -------------------------------------------------------------------------------

$provider->script({ match => '[job:locked]', responses => [ { hold => 'locked' } ] });
my $job = submit('locked');
$provider->wait_for_calls('locked', 1);
my $user = $pg->session;
$user->query('BEGIN');
$user->query('LOCK TABLE llmq.result IN SHARE MODE');
my $before = $pg->log_size;
$provider->release('locked');
wait_for(sub { $pg->log_text($before) =~ /settle failed and will be tried again/ }, 20, 'the settling fails for the second time');
my $meanwhile = submit('meanwhile');
$provider->wait_for_calls('meanwhile', 1);
is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$job'"), 'running', 'locked: the job is not lost meanwhile, nor final');
pass('locked: other calls go on');
$user->query('COMMIT');
is_done_once($job, 'locked');
is_done_once($meanwhile, 'meanwhile');
is(scalar(grep { $_ eq 'f' } $pg->sql("SELECT heartbeat > now() - interval '15 s' FROM llmq.worker_session")), 0, 'locked: the worker was not taken for lost');

# -- errors that pass -----------------------------------------------------------------------

for my $case ([ serialization => '40001', 1 ], [ deadlock => '40P01', 1 ], [ 'disk-full' => '53100', 4 ], [ 'read-only' => '25006', 2 ])
{
	my ($name, $sqlstate, $times) = @{$case};
	raise(result => $sqlstate, "nextval('public.tries') <= $times");
	is_done_once(submit($name), $name);
	is(tries(), $times + 1, "$name: the settling was tried again, as often as it took");
	let_be();
}

# -- a table that refuses another part of the settling ---------------------------------------------

for my $table (qw(attempt message))
{
	raise($table => '40001', "nextval('public.tries') <= 2");
	is_done_once(submit("in-$table"), "in-$table");
	let_be();
}

raise(result => '40001', "nextval('public.tries') <= 2", 'deferred');
is_done_once(submit('at-commit'), 'at-commit');
is(tries(), 3, 'at-commit: what fails at commit is tried again too');
let_be();

# -- a failure is settled no worse -----------------------------------------------------------------

$provider->script({ match => '[job:refused]', responses => [ { status => 400 } ] });
raise(dead_job => '40001', "nextval('public.tries') <= 2");
is($pg->final_state(submit('refused'))->{error_class}, 'bad_request', 'refused: a dead job is settled when it can be');
is(scalar(my @refused = $provider->calls('refused')), 1, 'refused: the provider was called once');
let_be();

# -- a row that cannot be stored ------------------------------------------------------------

# Ten answers in one batch, one of which the user's trigger never lets in.
$provider->script({ match => '[job:batch-', responses => [ { hold => 'batch' } ] });
my %batch = map { $_ => submit("batch-$_") } 1 .. 10;
$provider->wait_for_calls("batch-$_", 1) for 1 .. 10;
raise(result => 'P0001', "NEW.job_id = '$batch{5}' AND nextval('public.tries') > 0");
$provider->release('batch');
is_done_once($batch{$_}, "batch-$_") for 1 .. 4, 6 .. 10;
my $status = $pg->final_state($batch{5}, 40);
is("$status->{state} $status->{error_class}", 'dead internal', 'batch-5: the one that cannot be stored is dead');
like($status->{error_message}, qr/the user's trigger says no/, 'batch-5: and says why');
is(scalar(my @fifth = $provider->calls('batch-5')), 1, 'batch-5: it was called once');
cmp_ok(tries(), '<=', 10, 'batch-5: it was tried a few times only');
cmp_ok(tries(), '>=', 3, 'batch-5: but not given up at once');
is($pg->sql("SELECT outcome || ' ' || billing FROM llmq.attempt WHERE job_id = '$batch{5}'"), 'success billed', 'batch-5: what it cost is on record');
my $died = $pg->sql("SELECT died_at FROM llmq.dead_job WHERE job_id = '$batch{5}'");
is($pg->sql("SELECT count(*) FROM llmq.result AS r JOIN llmq.job AS j USING (job_id) WHERE j.idempotency_key LIKE 'batch-%' AND r.created_at > '$died'"), 0,
	'batch-5: its neighbours did not wait for it');
let_be();

# -- and one whose record cannot be stored either ---------------------------------------------------

raise(attempt => 'P0001', "NEW.job_id = llmq.job_id('postgres', 'submit', 'unrecorded')");
my $neighbour = submit('neighbour');
$status = $pg->final_state($job = submit('unrecorded'), 60);
is("$status->{state} $status->{error_class}", 'dead internal', 'unrecorded: a job whose attempts cannot be stored is dead in the end');
is(scalar(my @unrecorded = $provider->calls('unrecorded')), 1, 'unrecorded: it was called once');
is($pg->final_state($neighbour)->{state}, 'succeeded', 'unrecorded: another job is not held up');
let_be();

finish();
