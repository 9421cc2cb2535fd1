# on_complete: the user's function runs with the answer's own commit, as who submitted, whatever it
# does: no right is gained, no answer is lost, no call is made twice or held up.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;
use Time::HiRes 'sleep';

# How often the server is killed under the pipeline.
use constant KILLS => $ENV{LLMQ_CALLBACK_KILLS} || 8;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, debug => 1, conf => { 'llmq.callback_timeout' => '400ms' });
$pg->create_database('app', extension => 1, provider => $provider);

# The application: a role, its schema, and a table that all its functions write.
$pg->sql($_) for 'CREATE ROLE app LOGIN', q{SELECT llmq.grant_submit('app')}, 'CREATE SCHEMA app AUTHORIZATION app',
	q{ALTER ROLE app SET search_path = app, public}, 'SET ROLE app',
	'CREATE TABLE app.note (job_id uuid, what text, who text DEFAULT current_user, path text DEFAULT current_setting(\'search_path\'))',
	'RESET ROLE';

my $policy = { max_deliveries => 2, redelivery_base => '20 ms', redelivery_cap => '50 ms' };

sub calls { return scalar(my @calls = $provider->calls(@_)) }

# Runs SQL as a role.
sub as
{
	my ($role, $sql) = @_;
	$pg->sql("SET SESSION AUTHORIZATION $role");
	my $result = $pg->query($sql);
	$pg->sql('RESET SESSION AUTHORIZATION');
	die "$sql\n$result->{err}\n" if $result->{sqlstate} ne '00000';
	return $result->{out};
}

# Makes app.<name>(answer jsonb), a function in PL/pgSQL.
sub create
{
	my ($name, $body, $declare) = @_;
	as(app => "CREATE OR REPLACE FUNCTION app.$name(answer jsonb) RETURNS void LANGUAGE plpgsql AS \$f\$ "
		  . ($declare ? "DECLARE $declare " : '') . "BEGIN $body END \$f\$");
	return;
}

sub submit
{
	my ($name, %more) = @_;
	my $role = delete $more{role} // 'app';
	my %arguments = (prompt => "Go. [job:$name]", idempotency_key => $name, on_complete => "app.$name", policy => $policy, %more);
	return as($role => 'SELECT job_id FROM ' . LlmqTest::Cluster::submit_call(%arguments));
}

# The same, but the call is not answered before it is released.
sub submit_held
{
	my ($name, %more) = @_;
	$provider->script({ match => "[job:$name]", responses => [ { hold => $name }, {} ] });
	my $job = submit($name, %more);
	$provider->wait_for_calls($name, 1);
	return $job;
}

sub notes { return $pg->sql("SELECT count(*) FROM app.note WHERE job_id = '$_[0]'") }

my $write = q{INSERT INTO note (job_id, what) VALUES ((answer ->> 'job_id')::uuid, answer ->> 'text');};

# -- what it is for -------------------------------------------------------------

create(plain => $write);
$provider->script({ match => '[job:plain]', responses => [ { text => 'The answer.' } ] });
my $job = submit('plain', outbox => [ { topic => 'mail', payload => {} } ]);
my $status = $pg->final_state($job);
is("$status->{state} $status->{text}", 'succeeded The answer.', 'a job with on_complete succeeds');
is($pg->sql("SELECT concat_ws('|', what, who, path) FROM app.note WHERE job_id = '$job'"), 'The answer.|app|app, public',
	'its function has run once, with the answer, as the role that submitted, with its search_path');
is($pg->sql("SELECT count(DISTINCT x) FROM (SELECT xmin::text FROM app.note WHERE job_id = '$job' UNION ALL SELECT xmin::text FROM llmq.result WHERE job_id = '$job'
	UNION ALL SELECT xmin::text FROM llmq.attempt WHERE job_id = '$job' UNION ALL SELECT xmin::text FROM llmq.message WHERE job_id = '$job') AS t (x)"), 1,
	'result, attempt, message and what the function wrote are of one transaction');
is(calls('plain'), 1, 'there was one call');
my ($took) = $pg->sql("SELECT 1000 * extract(epoch FROM r.created_at - a.started_at - a.duration) FROM llmq.result AS r JOIN llmq.attempt AS a USING (job_id) WHERE job_id = '$job'");
note("settled $took ms after the call");
cmp_ok($took, '<', 2000, 'the callback worker was woken, it does not wait for its poll');

my $callback_worker = $pg->wait_for_callback_worker;
is($pg->sql("SELECT xact_start IS NULL AND backend_xid IS NULL FROM pg_stat_activity WHERE pid = $callback_worker"), 't', 'an idle callback worker is in no transaction');

# -- what functions do that they should not -------------------------------------

$pg->sql($_) for 'CREATE TABLE app.later (who text)', 'ALTER TABLE app.later OWNER TO app',
	q{CREATE FUNCTION app.note_who() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN INSERT INTO app.note (what) VALUES ('trigger'); RETURN NULL; END $f$},
	'CREATE CONSTRAINT TRIGGER late AFTER INSERT ON app.later DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION app.note_who()',
	'CREATE TABLE public.secret AS SELECT 1 AS x',
	# What others trust: a definer function whom the session belongs to, and a policy whether that is a superuser.
	q{CREATE FUNCTION public.open_safe() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS $f$
		BEGIN IF session_user <> 'postgres' THEN RAISE 'the safe is closed to %', session_user; END IF; RETURN (SELECT x FROM public.secret); END $f$},
	'CREATE TABLE public.diary AS SELECT 1 AS x', 'GRANT SELECT ON public.diary TO PUBLIC', 'ALTER TABLE public.diary ENABLE ROW LEVEL SECURITY',
	q{CREATE POLICY superusers ON public.diary USING (current_setting('is_superuser') = 'on' OR session_user = 'postgres')},
	'CREATE TABLE app.identity (job_id uuid, who text)', 'GRANT USAGE ON SCHEMA app TO PUBLIC', 'GRANT INSERT ON app.identity TO PUBLIC', 'CREATE ROLE other LOGIN', q{SELECT llmq.grant_submit('other')};

my %bad = (
	sleeps     => [ "$write PERFORM pg_sleep(30);", qr/statement timeout \(SQLSTATE 57014\)/ ],
	spins      => [ "$write LOOP NULL; END LOOP;", qr/statement timeout/ ],
	raises     => [ "$write RAISE EXCEPTION 'not today';", qr/not today \(SQLSTATE P0001\)/ ],
	resets     => [ "$write RESET ROLE;", qr/cannot set parameter "role" within security-/ ],
	sets_role  => [ "$write SET ROLE postgres;", qr/cannot set parameter "role"/ ],
	authorizes => [ "$write SET SESSION AUTHORIZATION DEFAULT;", qr/cannot set parameter "session_authorization"/ ],
	becomes    => [ "$write SET SESSION AUTHORIZATION postgres;", qr/cannot set parameter "session_authorization"/ ],
	goes_back  => [ "$write RESET SESSION AUTHORIZATION;", qr/cannot set parameter "session_authorization"/ ],
	has_no_role => [ "$write SET ROLE NONE;", qr/cannot set parameter "role"/ ],
	reads_safe => [ "$write PERFORM public.open_safe();", qr/the safe is closed to app/ ],
	peeks      => [ "$write PERFORM x FROM public.secret;", qr/permission denied for table secret/ ],
	peeks_in   => [ "$write PERFORM 1 FROM llmq.job;", qr/permission denied for table job/ ],
	settles    => [ "$write PERFORM llmq_internal.settler_settle((answer ->> 'job_id')::uuid);", qr/permission denied for function/ ],
	defers     => [ "$write SET CONSTRAINTS ALL DEFERRED; INSERT INTO later VALUES (1);", qr/cannot fire deferred trigger within security-restricted/ ],
	commits    => [ "$write COMMIT;", qr/invalid transaction termination/ ],
	rolls_back => [ "$write ROLLBACK;", qr/invalid transaction termination/ ],
	temporary  => [ "$write CREATE TEMPORARY TABLE t (x int);", qr/cannot create temporary table within security-restricted/ ],
	listens    => [ "$write LISTEN x;", qr/within security-restricted operation|background process/ ],
	catches    => [ "$write LOOP BEGIN PERFORM pg_sleep(30); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP;", qr/went on after it was cancelled/ ],
	divides    => [ "$write PERFORM 1 / 0;", qr/division by zero/ ]);
create($_ => $bad{$_}[0]) for keys %bad;
my %job = map { $_ => submit($_, outbox => [ { topic => 'sad', payload => {}, on => 'dead' } ]) } sort keys %bad;
for my $name (sort keys %bad)
{
	my $dead = $pg->final_state($job{$name}, 60);
	is("$dead->{state} $dead->{error_class}", 'dead callback_failed', "$name: the job is dead");
	like($dead->{error_message}, $bad{$name}[1], "$name: and it says why");
	is($pg->sql("SELECT failures || ' ' || dead FROM llmq.answer WHERE job_id = '$job{$name}'"), '2 true', "$name: after two tries, and the answer is kept");
	is(notes($job{$name}), 0, "$name: what it wrote is undone");
	is($pg->sql("SELECT count(*) FROM llmq.result WHERE job_id = '$job{$name}'") . $pg->sql("SELECT string_agg(topic, '') FROM llmq.outbox WHERE job_id = '$job{$name}'"),
		'0sad', "$name: there is no result, and the message of its death");
	is(calls($name), 1, "$name: it was called once");
}
create($_ => $write) for keys %bad;
is($pg->sql(q{SELECT llmq.redrive_queue('default', 'callback_failed')}), scalar(keys %bad), 'all of them are redriven');
for my $name (sort keys %bad)
{
	is($pg->final_state($job{$name})->{state}, 'succeeded', "$name: after the mend it succeeds");
	is(notes($job{$name}) . calls($name), '11', "$name: from the kept answer, without another call");
}
is($pg->sql("SELECT count(*) FROM app.note WHERE who <> 'app'"), 0, 'nothing was ever done with other rights than those of the role');

# Whose the session is, by all words that there are for it, and how much of the diary can be read.
my $identify = q{INSERT INTO app.identity SELECT (answer ->> 'job_id')::uuid, concat_ws(' ', current_user, session_user, current_setting('is_superuser'),
	(SELECT count(*) FROM public.diary));};
create(identifies => $identify);
create(identifies_badly => "$identify RAISE 'badly';");
create(identifies_slowly => "$identify PERFORM pg_sleep(30);");
sub identity
{
	my ($name, $role, $function) = @_;
	my $submitted = submit($name, role => $role, on_complete => 'app.' . ($function // 'identifies'));
	my $state = $pg->final_state($submitted)->{state};
	return "$state: " . $pg->sql("SELECT string_agg(who, ', ') FROM app.identity WHERE job_id = '$submitted'");
}
is(identity('identity_app', 'app'), 'succeeded: app app off 0', 'to its function the session is that of the role that submitted');
is(identity('identity_other', 'other'), 'succeeded: other other off 0', 'to the next one that of another role');
is(identity('identity_badly', 'other', 'identifies_badly'), 'dead: ', 'one that raises');
is(identity('identity_slowly', 'app', 'identifies_slowly'), 'dead: ', 'or is cancelled');
is(identity('identity_superuser', 'postgres'), 'succeeded: postgres postgres on 1', 'leaves the process what it was: a superuser has all rights after it');
is(identity('identity_again', 'other'), 'succeeded: other other off 0', 'and others their own after that');
create($_ => $identify) for qw(identifies_badly identifies_slowly);	# a redrive below finds no fault with them

# -- what is harmless ----------------------------------------------------------------

create(queues => "$write INSERT INTO later VALUES (1);");
is($pg->final_state(submit('queues'))->{state}, 'succeeded', 'a trigger that is initially deferred fires at once');
is($pg->sql("SELECT string_agg(who, ' ') FROM app.note WHERE what = 'trigger'"), 'app', 'as the role');

create(litters => "$write SET search_path = pg_temp; SET statement_timeout = 1; SET lock_timeout = 1; SET work_mem = 64; SET application_name = 'mine'; PERFORM pg_advisory_lock(7);");
is($pg->final_state(submit('litters'))->{state}, 'succeeded', 'settings and locks of the session');
is($pg->final_state(submit('after_litter', on_complete => 'app.plain'))->{state}, 'succeeded', 'are none of the next one');
is($pg->sql("SELECT path FROM app.note WHERE job_id = llmq.job_id('app', 'submit', 'after_litter')"), 'app, public', 'which has its own search_path');
is($pg->sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 0, 'no lock is left');
is($pg->sql("SELECT application_name FROM pg_stat_activity WHERE pid = $callback_worker"), '', 'nor a name; it is the same process');

create(patient => "PERFORM pg_advisory_xact_lock(8); $write");
my $holder = $pg->session;
$holder->query('BEGIN; SELECT pg_advisory_xact_lock(8)');
$job = submit('patient', policy => { max_deliveries => 5, redelivery_base => '1 s' });
wait_for(sub { $pg->sql("SELECT failures FROM llmq.answer WHERE job_id = '$job'") }, 20, 'it has failed');
like($pg->sql("SELECT error_message FROM llmq.answer WHERE job_id = '$job'"), qr/statement timeout/, 'a lock is waited for until the timeout');
is($pg->sql("SELECT state || ' ' || wait_reason FROM llmq.job_status WHERE job_id = '$job'"), 'running on_complete', 'the job runs meanwhile');
$holder->query('COMMIT');
is($pg->final_state($job)->{state}, 'succeeded', 'and is settled when the lock is free');

# -- what happens to functions and roles ------------------------------------------------

create(withdrawn => $write);
$job = submit_held('withdrawn');
$pg->sql('REVOKE EXECUTE ON FUNCTION app.withdrawn(jsonb) FROM PUBLIC, app');
$provider->release('withdrawn');
like($pg->final_state($job)->{error_message}, qr/permission denied for function withdrawn/, 'a role that has lost EXECUTE does not get it');
$pg->sql('GRANT EXECUTE ON FUNCTION app.withdrawn(jsonb) TO app');
$pg->sql("SELECT llmq.redrive('$job')");
is($pg->final_state($job)->{state} . notes($job) . calls('withdrawn'), 'succeeded11', 'with it again the job is settled, without another call');

create(dropped => $write);
$job = submit_held('dropped', policy => { max_deliveries => 5, redelivery_base => '300 ms', redelivery_cap => '300 ms' });
$pg->sql('DROP FUNCTION app.dropped(jsonb)');
$pg->sql('CREATE FUNCTION app.dropped(json) RETURNS void LANGUAGE plpgsql AS $f$ BEGIN INSERT INTO note (what) VALUES (\'the other one\'); END $f$');
$provider->release('dropped');
wait_for(sub { $pg->sql("SELECT failures FROM llmq.answer WHERE job_id = '$job'") }, 20, 'it has failed');
like($pg->sql("SELECT error_message FROM llmq.answer WHERE job_id = '$job'"), qr/function app.dropped\(jsonb\) does not exist/, 'a function that was dropped is missed, also where another has its name');
create(dropped => $write);
is($pg->final_state($job)->{state} . notes($job) . calls('dropped'), 'succeeded11', 'created again it is called');
is($pg->sql("SELECT count(*) FROM app.note WHERE what = 'the other one'"), 0, 'and the other never');

$pg->sql($_) for 'CREATE ROLE leaver LOGIN', q{SELECT llmq.grant_submit('leaver')}, 'GRANT USAGE ON SCHEMA app TO leaver', 'GRANT INSERT ON app.note TO leaver';
create(leaver => $write =~ s/note/app.note/r);
$job = submit_held('leaver', role => 'leaver');
$pg->sql($_) for 'DROP OWNED BY leaver', 'DROP ROLE leaver';
$provider->release('leaver');
wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.dead_job WHERE job_id = '$job'") }, 20, 'it is dead');
like($pg->sql("SELECT error_message FROM llmq.dead_job WHERE job_id = '$job'"), qr/role "leaver", which submitted the job, does not exist/, 'without its role a job is not settled');
$pg->sql($_) for 'CREATE ROLE leaver', 'GRANT USAGE ON SCHEMA app TO leaver', 'GRANT INSERT ON app.note TO leaver', "SELECT llmq.redrive('$job')";
is($pg->final_state($job)->{state} . notes($job) . calls('leaver'), 'succeeded11', 'with it again it is');

create(never => q{RAISE EXCEPTION 'never';});
$job = submit('never', policy => { redelivery_base => '1 h', redelivery_cap => '1 h' });
wait_for(sub { $pg->sql("SELECT failures FROM llmq.answer WHERE job_id = '$job'") }, 20, 'it has failed');
is($pg->sql("SELECT llmq.cancel('$job')"), 't', 'a job whose function fails can be cancelled');
is($pg->final_state($job)->{state} . ' ' . $pg->sql("SELECT billing FROM llmq.attempt WHERE job_id = '$job'"), 'cancelled billed', 'and its call is on record');

# -- other calls meanwhile ----------------------------------------------------------------

# Runs 200 calls of 300 ms, and returns the time from submit to the last settled, and the provider's
# longest call, in seconds.
sub run_others
{
	my ($name) = @_;
	$provider->script({ match => "[job:$name]", responses => [ { delay_ms => 300 } ] });
	my $began = now();
	$pg->sql("SELECT count(*) FROM (SELECT llmq.submit('Other. [job:$name]', '$name-' || i) FROM generate_series(1, 200) AS i) AS s");
	wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.result AS r JOIN llmq.job AS j USING (job_id) WHERE j.idempotency_key LIKE '$name-%'") eq '200' }, 60, "$name are done");
	my $time = now() - $began;
	my ($longest, $last) = (0, 0);
	for my $call ($provider->calls($name))
	{
		$longest = $call->{end} - $call->{start} if $call->{end} - $call->{start} > $longest;
		$last = $call->{end} if $call->{end} > $last;
	}
	return ($time, $longest, $last - $began, scalar(my @calls = $provider->calls($name)));
}

my ($alone, $longest_alone, $last_alone) = run_others('alone');
create(slow => 'PERFORM pg_sleep(30);');
submit("slow-$_", on_complete => 'app.slow', policy => { %{$policy}, max_deliveries => 5, redelivery_base => '1 ms', redelivery_cap => '1 ms' }) for 1 .. 20;
wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.answer WHERE NOT dead') >= 20 }, 20, 'the callback worker has slow ones');
my ($beside, $longest_beside, $last_beside, $calls) = run_others('beside');
cmp_ok($pg->sql('SELECT count(*) FROM llmq.answer WHERE NOT dead'), '>', 0, 'the callback worker is busy with slow functions all the time');
is($calls, 200, '200 other calls were made meanwhile');
note(sprintf 'alone: last call ended after %.2f s, longest %.2f s, all settled after %.2f s; beside: %.2f, %.2f, %.2f', $last_alone, $longest_alone, $alone, $last_beside, $longest_beside, $beside);
cmp_ok($longest_beside, '<', $longest_alone + 0.3, q(none of them takes longer, by the provider's log));
cmp_ok($last_beside, '<', $last_alone + 1, 'nor does the last one end later');
cmp_ok($beside, '<', $alone + 1.5, 'and they are settled as soon');
create(slow => $write);
wait_for(sub { $pg->sql(q{SELECT llmq.redrive_queue('default', 'callback_failed'), count(*) FROM llmq.answer}) =~ /\|0\z/ }, 60, 'the slow ones are done');

# A function that waits uses up the latch that a commit sets: what comes meanwhile is seen all the same.
create(waits => "PERFORM pg_sleep(0.2); $write");
submit("waits-$_", on_complete => 'app.waits', policy => { max_deliveries => 5 }) for 1 .. 3;
wait_for(sub { $pg->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'llmq callback worker' AND wait_event = 'PgSleep'}) }, 20, 'a function waits');
my $fast = submit('meanwhile', on_complete => 'app.plain');
$pg->final_state($fast);
cmp_ok($pg->sql("SELECT extract(epoch FROM r.created_at - a.started_at - a.duration) FROM llmq.result AS r JOIN llmq.attempt AS a USING (job_id) WHERE job_id = '$fast'"),
	'<', 3, 'an answer that comes while a function waits is settled after it, not at the next poll');

# -- kills ---------------------------------------------------------------------------------

for my $point ('settle-uncommitted', 'settle-committed', 'answer-begun', 'callback-begun', 'answer-uncommitted', 'answer-committed')
{
	for my $how ('process', 'server')
	{
		my $name = "$point-$how";
		$callback_worker = $pg->wait_for_callback_worker;
		$pg->wait_for_worker;
		$pg->arm($point);
		$job = submit($name, on_complete => 'app.plain', outbox => [ { topic => 'mail', payload => {} } ]);
		my $pid = $pg->wait_for_point($point);
		$point =~ /settle/ ? isnt($pid, $callback_worker, "$name: the worker is there") : is($pid, $callback_worker, "$name: the callback worker is there");
		$how eq 'process' ? $pg->kill_backend($pid) : ($pg->kill9, $pg->start);
		$pg->leave_point($point);
		is($pg->final_state($job, 40)->{state}, 'succeeded', "$name: the job succeeds");
		is(notes($job) . $pg->sql("SELECT count(*) FROM llmq.outbox WHERE job_id = '$job'"), '11', "$name: its effects are there, once");
		is(calls($name), $point eq 'settle-uncommitted' ? 2 : 1, "$name: and no call is made twice that was settled");
	}
}

# A pipeline of ten steps, each submitted by the on_complete of the one before.
create(next_step => q{INSERT INTO note (job_id, what) VALUES ((answer ->> 'job_id')::uuid, answer ->> 'run_id');
	PERFORM pg_sleep(0.03);
	IF n < 10 THEN
		PERFORM llmq.submit(format('Go on. [job:%s]', answer ->> 'run_id'), format('%s-%s', answer ->> 'run_id', n + 1),
			on_complete => 'app.next_step', run_id => answer ->> 'run_id', step => 'n', metadata => jsonb_build_object('n', n + 1));
	END IF;}, q{n int := (answer -> 'metadata' ->> 'n')::int;});
my ($kills, $run) = (0, 0);
while ($kills < KILLS)
{
	my $id = 'pipeline-' . ++$run;
	my $before = $kills;
	$provider->script({ match => "[job:$id]", responses => [ { delay_ms => 40 } ] });
	submit($id, idempotency_key => "$id-1", on_complete => 'app.next_step', run_id => $id, step => 'n', metadata => { n => 1 });
	my $done = sub { $pg->sql("SELECT succeeded FROM llmq.run WHERE run_id = '$id'") eq '10' };
	while ($kills < KILLS && !$done->())
	{
		sleep rand 0.5;
		my $victim = int rand 3;
		if ($victim < 2)
		{
			my $pid = $victim ? $pg->wait_for_callback_worker : $pg->wait_for_worker;
			eval { $pg->kill_backend($pid); 1 } or next;
		}
		else
		{
			$pg->kill9;
			$pg->start;
		}
		$kills++;
	}
	wait_for($done, 60, "$id is done");
	my $cut = $kills - $before;
	is($pg->sql("SELECT count(*) FROM llmq.result AS r JOIN llmq.job AS j USING (job_id) WHERE j.run_id = '$id'"), 10, "$id: $cut kills, ten results");
	is($pg->sql("SELECT count(*) || ' ' || count(DISTINCT job_id) FROM app.note WHERE what = '$id'"), '10 10', "$id: each function has run once");
	my $called = calls($id);
	ok($called >= 10 && $called <= 10 + $cut, "$id: $called calls, ten and at most one for each kill");
}

# -- leaving -----------------------------------------------------------------------------------

create(sleeps => 'PERFORM pg_sleep(30);');
$pg->set('llmq.callback_timeout' => 0);
$pg->reload;
wait_for(sub { $pg->sql('SHOW llmq.callback_timeout') eq '0' }, 20, 'there is no timeout');
$callback_worker = $pg->wait_for_callback_worker;
$job = submit('sleeps', idempotency_key => 'endless', prompt => '[job:endless]');
wait_for(sub { $pg->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $callback_worker AND wait_event = 'PgSleep'") }, 20, 'its function sleeps');
my $began = now();
$pg->sql('SELECT llmq.stop_worker()');
wait_for(sub { is_gone($callback_worker) }, 20, 'the callback worker has left');
cmp_ok(now() - $began, '<', 2, 'a callback worker that is told to leave does not wait for a function');
create(sleeps => $write);
$pg->sql('SELECT llmq.start_worker()');
is($pg->final_state($job)->{state} . notes($job) . calls('endless'), 'succeeded11', 'and its successor finishes the job');

$pg->set('llmq.workers' => 0);
$pg->reload;
wait_for(sub { !$pg->workers }, 20, 'there is no worker');
is($pg->wait_for_callback_worker > 0, 1, 'without workers there is a callback worker all the same');
$pg->disconnect;
$pg->sql('ALTER DATABASE app RENAME TO other', 'postgres');
is($pg->sql('SELECT count(*) FROM pg_database WHERE datname = \'other\'', 'postgres'), 1, 'it does not keep a database from being renamed');
$pg->use_database('other');
$pg->wait_for_callback_worker;
is($pg->query('DROP EXTENSION llmq')->{sqlstate}, '00000', 'nor the extension from being dropped');
wait_for(sub { !$pg->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'llmq callback worker'}) }, 20, 'it leaves');
$pg->disconnect;
is($pg->query('DROP DATABASE other', 'postgres')->{sqlstate}, '00000', 'and the database can go');
$pg->use_database('postgres');

finish();
