# llmq-worker: the engine as a program, by the rights of grant_worker alone; woken by NOTIFY; how it
# ends, and what becomes of its jobs when it, its connection or the server dies.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.workers' => 0, max_prepared_transactions => 2 });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->sql(q{CREATE ROLE remote LOGIN; SELECT llmq.grant_worker('remote')});
# Settings that would be in its way must not be.
$pg->sql("ALTER ROLE remote SET $_") for 'statement_timeout = 1', 'lock_timeout = 1', 'default_transaction_read_only = on',
	"default_transaction_isolation = 'serializable'", "search_path = 'public'", 'idle_in_transaction_session_timeout = 1';
my $as_remote = $pg->conninfo('app', 'remote');

# What runs soon, with polls as rare as this, runs because the worker was woken.
my @rarely = ('--poll-interval', 3600);
my %patient = (call_timeout => '100 s', deadline => '110 s');

sub submit_held
{
	my ($name, %arguments) = @_;
	$provider->script({ match => "[job:$name]", responses => [ map { { hold => "$name-$_", text => "answer $_" } } 1 .. 3 ] });
	my $job = $pg->submit(prompt => "Hold on. [job:$name]", idempotency_key => $name, policy => \%patient, %arguments);
	$provider->wait_for_calls($name, 1);
	return $job;
}

sub calls { return scalar(my @calls = $provider->calls(@_)) }

sub run_program
{
	my (@args) = @_;
	my $program = start_program($pg, args => [@args]);
	return ($program->exit_code, $program->log_text);
}

# -- what it says ---------------------------------------------------------------

{
	my ($code, $text) = run_program('--help');
	is($code, 0, '--help ends with 0');
	like($text, qr/^Usage:.*--max-in-flight/ms, 'and says what there is');
	($code, $text) = run_program('--version');
	is("$code $text", '0 llmq-worker ' . $pg->sql(q{SELECT extversion FROM pg_extension WHERE extname = 'llmq'}) . "\n", '--version says the version');
	($code, $text) = run_program('--max-in-flight', 'many');
	is($code, 2, 'an option that makes no sense ends it with 2');
	like($text, qr/--max-in-flight is "many", and must be a number from 1 to 100000/, 'and it says what would');
	my $program = start_program($pg, conninfo => 'hots=nowhere');
	is($program->exit_code, 2, 'so does a connection string that cannot be read');
}

# -- once -----------------------------------------------------------------------

my $early = $pg->submit(prompt => 'Early. [job:early]', idempotency_key => 'early');
{
	my $program = start_program($pg, conninfo => $as_remote, args => ['--once']);
	is($program->exit_code, 0, '--once ends with 0 when there is nothing more to do');
	is($pg->final_state($early)->{state}, 'succeeded', 'after it has run what was ready');
	is($pg->sql('SELECT count(*) FROM llmq.worker_session'), 0, 'and leaves no session behind');
	$program = start_program($pg, conninfo => "host=$ENV{TMPDIR}/nowhere", args => ['--once']);
	is($program->exit_code, 4, '--once ends with 4 when the database cannot be reached');
	like($program->log_text, qr/warning: the database cannot be reached: .*nowhere/, 'and says why');
}

# -- at work --------------------------------------------------------------------

my $worker = start_program($pg, name => 'far', conninfo => $as_remote, args => \@rarely);
$pg->wait_for_programs(1);
my $row = $pg->row('SELECT * FROM llmq.worker');
is("$row->{name} $row->{kind} $row->{state}", 'far program running', 'llmq.worker shows the program');
is($pg->sql("SELECT usename || ' ' || application_name FROM pg_stat_activity WHERE pid = $row->{pid}"), 'remote llmq-worker far',
	'and the process of the server that it talks to');

for my $number (1 .. 10)
{
	my $job = $pg->submit(prompt => "Wake up. [job:wake$number]", idempotency_key => "wake$number");
	$pg->final_state($job, 10);
	pass('a commit wakes an idle program') if $number == 1;
}
is(calls('wake10'), 1, 'every time');

my $held = submit_held('held');
ok(wait_for(sub { $pg->sql("SELECT xact_start IS NULL FROM pg_stat_activity WHERE pid = $row->{pid}") eq 't' }, 10, 'no transaction is open'),
	'no transaction is open during a call, but for the moments of a poll');
$pg->sql("SELECT llmq.cancel('$held')");
ok(wait_for(sub { ($provider->calls('held'))[0]{how} }, 10, 'the call has ended'), 'a cancel ends its call');

$pg->sql('CREATE TABLE kept (answer jsonb)');
$pg->sql('CREATE FUNCTION keep(answer jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO kept VALUES (answer) $$');
my $called = $pg->submit(prompt => 'Call back. [job:back]', idempotency_key => 'back', on_complete => 'public.keep');
is($pg->final_state($called, 10)->{state}, 'succeeded', 'a job with on_complete succeeds');
is($pg->sql(q{SELECT answer ->> 'text' FROM kept}), 'Call back. [job:back]', 'and the callback worker in the server has called the function');

# -- prepared transactions --------------------------------------------------------

is($pg->query("BEGIN; SELECT llmq.submit('Prepared. [job:prepared]', 'prepared'); PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'")->{sqlstate}, '00000',
	'a transaction that submits can be prepared while a program listens');
my $after = $pg->submit(prompt => 'After it. [job:after]', idempotency_key => 'after');
$pg->final_state($_, 10) for $after, $pg->sql(q{SELECT llmq.job_id('postgres', 'submit', 'prepared')});
is(calls('prepared'), 1, 'and its job is found with the next one');

# -- the end ----------------------------------------------------------------------

my $last = submit_held('last');
$provider->script({ match => '[job:retry]', responses => [ { status => 500 }, { text => 'at last' } ] });
my $retry = $pg->submit(prompt => 'Retry. [job:retry]', idempotency_key => 'retry', policy => { backoff_base => '60 s', backoff_cap => '60 s', deadline => '200 s' });
$provider->wait_for_calls('retry', 1);
wait_for(sub { ($provider->calls('retry'))[0]{how} }, 20, 'the first call of retry has ended');
$worker->signal('TERM');
wait_for(sub { $pg->sql('SELECT state FROM llmq.worker') eq 'draining' }, 10, 'the program drains');
pass('a program that is told to end says that it is draining');
ok(wait_for(sub { $pg->sql("SELECT state <> 'running' FROM llmq.job_status WHERE job_id = '$retry'") eq 't' }, 10, 'retry is given back'),
	'it gives back at once what waits for its next attempt');
my $unclaimed = $pg->submit(prompt => 'Not yours. [job:unclaimed]', idempotency_key => 'unclaimed');
$provider->release('last-1');
is($worker->exit_code, 0, 'and ends with 0');
is($pg->final_state($last)->{text}, 'answer 1', 'when the answer that was under way is committed');
is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$unclaimed'"), 'ready', 'it claims nothing any more');
is($pg->sql('SELECT count(*) FROM llmq.worker_session'), 0, 'and says goodbye');

# A limit, and a second signal.
$worker = start_program($pg, conninfo => $as_remote, args => [ @rarely, '--drain', 0.2 ]);
my $cut = submit_held('cut');
is($worker->terminate, 0, 'when the limit of draining has passed it ends, too');
is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$cut'"), 'ready', 'and the job is ready again at once');
is($pg->sql("SELECT string_agg(error_class || ' ' || billing, ',') FROM llmq.attempt WHERE job_id = '$cut'"), 'interrupted unknown', 'its attempt is recorded as interrupted');
$worker = start_program($pg, conninfo => $as_remote, args => [ @rarely, '--drain', 3600 ]);
$provider->wait_for_calls('cut', 2);
$worker->signal('TERM');
wait_for(sub { $worker->log_text =~ /told to end/ }, 10, 'it has heard of it');
is($worker->terminate, 0, 'a second signal ends calls at once');

# -- the server restarts, in the middle of a call -----------------------------------

$worker = start_program($pg, conninfo => $as_remote, args => [ @rarely, '--log-format', 'json' ]);
$provider->wait_for_calls('cut', 3);
my $second = submit_held('second');
$pg->restart('immediate');
$provider->release('cut-3');
wait_for(sub { ($provider->calls('cut'))[2]{how} }, 20, 'the answer came while there was no database, or soon after');
is($pg->final_state($cut)->{text}, 'answer 3', 'an answer in hand is settled when the database is back');
$provider->release('second-1');
is($pg->final_state($second)->{text}, 'answer 1', 'a call goes on while the server restarts');
is(calls('second'), 1, 'and is not repeated');
my $again = $pg->submit(prompt => 'Once more. [job:again]', idempotency_key => 'again');
is($pg->final_state($again, 10)->{state}, 'succeeded', 'the new connection is woken by commits as well');
like($worker->log_text, qr/^\{"time":"[^"]+Z","level":"info","worker":"program-\d+","message":"connected to the database again"\}$/m, 'the log can be JSON');

# -- its backend is terminated ------------------------------------------------------

my $mid = submit_held('mid');
$pg->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name ~ '^llmq-worker'});
$provider->release('mid-1');
is($pg->final_state($mid)->{text}, 'answer 1', 'a program whose session is ended makes another');
is(calls('mid'), 1, 'and repeats no call');

# -- killed ---------------------------------------------------------------------------

my $lost = submit_held('lost');
$worker->kill9;
my $successor = start_program($pg, conninfo => $as_remote);
$provider->wait_for_calls('lost', 2, 40);
$provider->release('lost-2');
is($pg->final_state($lost, 40)->{text}, 'answer 2', 'the jobs of a killed program are run by another after the ttl');
is($pg->sql("SELECT error_class || ' ' || billing FROM llmq.attempt WHERE job_id = '$lost' AND attempt = 0"), 'interrupted unknown', 'and what it did is recorded');
is_deeply($pg->wait_for_programs(1), [ $pg->sql('SELECT name FROM llmq.worker') ], 'its session is gone');

# -- queues -----------------------------------------------------------------------------

$pg->insert('queue', name => $_) for qw(mine theirs);
is($successor->terminate, 0, 'the successor ends');
my $theirs = $pg->submit(prompt => 'Theirs. [job:theirs]', idempotency_key => 'theirs', queue => 'theirs');
$worker = start_program($pg, conninfo => $as_remote, args => [ '--queue', 'mine' ]);
my $mine = $pg->submit(prompt => 'Mine. [job:mine]', idempotency_key => 'mine', queue => 'mine');
is($pg->final_state($mine)->{state}, 'succeeded', 'a program serves the queues that it is given');
is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$theirs'"), 'ready', 'and no others');
$worker->terminate;

# -- another protocol -----------------------------------------------------------------

$pg->sql(q{DO $do$ BEGIN
	EXECUTE replace(pg_get_functiondef('llmq.worker_hello'::regproc), 'protocol <> expected', 'true');
END $do$});
$worker = start_program($pg, conninfo => $as_remote);
is($worker->exit_code, 3, 'a program that speaks another protocol than the database ends with 3');
like($worker->log_text, qr/protocol/, 'and says so');

finish();
