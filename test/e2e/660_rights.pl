# Ways to the rights of the workers, which have all: a schema that was there before the extension,
# functions that are better matches than llmq's own, and types in a search_path.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '200ms' });
$pg->sql('CREATE ROLE mallory LOGIN CREATEDB; CREATE ROLE dba SUPERUSER; CREATE ROLE web LOGIN');

# Whether mallory is still no superuser.
sub is_powerless { return $pg->sql(q{SELECT NOT rolsuper FROM pg_roles WHERE rolname = 'mallory'}, 'postgres') }

# -- a schema that was there before -----------------------------------------------------------------

# Makes a database of mallory's, with statements of that role's and of the superuser's in it.
my $databases = 0;
sub prepare_database
{
	my ($mallorys, $ours) = @_;
	my $db = 'before' . ++$databases;
	$pg->sql("CREATE DATABASE $db OWNER mallory", 'postgres');
	$pg->use_database($db);
	$pg->sql("SET SESSION AUTHORIZATION mallory; $mallorys; RESET SESSION AUTHORIZATION");
	$pg->sql($ours) if $ours;
	return $db;
}

# Tests that CREATE EXTENSION is refused, and says what it should.
sub is_refused
{
	my ($what, $sqlstate, $message, @statements) = @_;
	my $db = prepare_database(@statements);
	my $refusal = $pg->query('CREATE EXTENSION llmq');
	is($refusal->{sqlstate}, $sqlstate, "$what: CREATE EXTENSION is refused");
	like($refusal->{err}, qr/\A(?=.*$message)(?=.*DETAIL: ).*HINT: /s, "$what: it says why, and what helps");
	$pg->drop_database($db);
	return;
}

my $takes_over = q{LANGUAGE plpgsql AS 'BEGIN ALTER ROLE mallory SUPERUSER; RETURN 0; END'};
is_refused('a schema of another role', 42501, 'belongs to another role.*"mallory"', 'CREATE SCHEMA llmq');
is_refused('a schema of another role with functions', 42501, 'belongs to another role',
	"CREATE SCHEMA llmq; CREATE FUNCTION llmq.prune_step(text) RETURNS bigint $takes_over; CREATE FUNCTION llmq.lost_sessions(text) RETURNS int $takes_over");
is_refused('a schema that was given away, with functions', 55000, 'not empty.*lost_sessions',
	"CREATE SCHEMA llmq; CREATE FUNCTION llmq.lost_sessions(text) RETURNS int $takes_over", 'ALTER SCHEMA llmq OWNER TO postgres');
is_refused('a schema that another role may write to', 42501, 'may create objects in schema "llmq".*mallory', '', 'CREATE SCHEMA llmq; GRANT CREATE ON SCHEMA llmq TO mallory');
is_refused('a schema that everybody may write to', 42501, 'may create objects in schema "llmq".*PUBLIC', '', 'CREATE SCHEMA llmq; GRANT CREATE ON SCHEMA llmq TO PUBLIC');
my %things = (
	function   => 'CREATE FUNCTION llmq.f() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$',
	table      => 'CREATE TABLE llmq.t ()',
	sequence   => 'CREATE SEQUENCE llmq.s',
	view       => 'CREATE VIEW llmq.v AS SELECT 1 AS x',
	type       => 'CREATE TYPE llmq.e AS ENUM ()',
	domain     => 'CREATE DOMAIN llmq.d AS text',
	operator   => 'CREATE OPERATOR llmq.<> (LEFTARG = text, RIGHTARG = name, FUNCTION = pg_catalog.textnename)',
	'operator family' => 'CREATE OPERATOR FAMILY llmq.y USING btree',
	collation  => 'CREATE COLLATION llmq.c FROM "C"',
	conversion => 'CREATE CONVERSION llmq.c FOR \'LATIN1\' TO \'UTF8\' FROM iso8859_1_to_utf8',
	statistics => 'CREATE TABLE public.t (a int, b int); CREATE STATISTICS llmq.s ON a, b FROM public.t',
	'text search configuration' => 'CREATE TEXT SEARCH CONFIGURATION llmq.c (COPY = pg_catalog.simple)');
is_refused('a schema llmq_internal', '42P06', 'schema "llmq_internal" exists already',
	"CREATE SCHEMA llmq_internal; CREATE FUNCTION llmq_internal.prune_step(text) RETURNS bigint $takes_over");
is_refused("a schema with a $_", 55000, 'schema "llmq" is not empty', '', "CREATE SCHEMA llmq; $things{$_}") for sort keys %things;

prepare_database('SELECT 1', 'CREATE SCHEMA llmq AUTHORIZATION dba');
is($pg->query('CREATE EXTENSION llmq')->{sqlstate}, '00000', 'an empty schema of another superuser, as a restore makes it, is taken');
$pg->endpoint(main => $provider);
is($pg->final_state($pg->submit(prompt => 'Hello.', idempotency_key => 'restored'))->{state}, 'succeeded', 'and the worker works there');
is(is_powerless(), 't', 'and nobody has become a superuser');

# -- functions that match better ------------------------------------------------------------------------

# Beside each function of llmq, others of its name: with another type for one argument, text for all,
# without those that have defaults.  What is not called with the very types of llmq's calls them instead, or is ambiguous.
my $overload = <<'SQL';
DO $$
DECLARE
    f record;
    args text;
    name text;
BEGIN
    FOR f IN
        SELECT p.pronamespace::regnamespace AS schema, p.proname, p.pronargs - p.pronargdefaults AS required, a.types
        FROM pg_proc AS p, LATERAL (SELECT ARRAY(SELECT t.type::regtype FROM unnest(p.proargtypes) WITH ORDINALITY AS t (type, i) ORDER BY i)) AS a (types)
        WHERE p.pronamespace::regnamespace::text IN ('llmq', 'llmq_internal') AND p.prokind = 'f' AND p.pronargs > 0
    LOOP
        FOR args IN
            WITH other (type, instead) AS (VALUES
                ('text', 'name'), ('text', 'varchar'), ('name', 'text'), ('smallint', 'int'), ('int', 'smallint'), ('int', 'bigint'),
                ('bigint', 'int'), ('numeric', 'int'), ('numeric', 'bigint'), ('numeric', 'float8'), ('float8', 'int'), ('float8', 'numeric'),
                ('timestamptz', 'date'), ('timestamptz', 'timestamp'), ('jsonb', 'json'), ('bigint[]', 'int[]'), ('uuid[]', 'text[]'),
                ('text[]', 'name[]'), ('name[]', 'text[]'), ('regrole', 'oid'), ('regclass', 'oid'), ('regproc', 'oid')),
            change (position, type) AS (
                SELECT i, o.instead FROM generate_series(1, cardinality(f.types)) AS i JOIN other AS o ON o.type::regtype = f.types[i]
                UNION SELECT i, 'text' FROM generate_series(1, cardinality(f.types)) AS i WHERE f.types[i] <> 'text'::regtype)
            SELECT array_to_string(f.types[:c.position - 1] || c.type::regtype || f.types[c.position + 1:], ', ') FROM change AS c
            UNION SELECT array_to_string(array_fill('text'::regtype, ARRAY[cardinality(f.types)]), ', ')
            -- What users call as they please is theirs to be careful with.
            UNION SELECT array_to_string(f.types[:n], ', ') FROM generate_series(f.required, cardinality(f.types) - 1) AS n
            WHERE f.proname <> ALL ('{submit, http_submit, outbox_claim, redrive_queue, idempotency_begin, idempotency_finish, step_begin}')
        LOOP
            name := format('%s.%I(%s)', f.schema, f.proname, args);
            CONTINUE WHEN to_regprocedure(name) IS NOT NULL;
            EXECUTE format('CREATE FUNCTION %s RETURNS void LANGUAGE plpgsql AS %L', name,
                format('BEGIN RAISE LOG USING MESSAGE = %1$L; RAISE USING MESSAGE = %1$L; END', 'planted: ' || name));
        END LOOP;
    END LOOP;
END
$$
SQL

$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;
my $own = $pg->sql(q{SELECT count(*) FROM pg_proc WHERE pronamespace::regnamespace::text IN ('llmq', 'llmq_internal')});
$pg->sql($overload);
cmp_ok($pg->sql(q{SELECT count(*) FROM pg_proc WHERE pronamespace::regnamespace::text IN ('llmq', 'llmq_internal')}), '>', 3 * $own, 'each function of llmq has overloads beside it');

my $log = $pg->log_size;
my $job;
$pg->sql($_) for q{SELECT llmq.grant_submit('web'::regrole), llmq.grant_admin('web'::regrole)}, 'CREATE SCHEMA web AUTHORIZATION web',
	q{CREATE FUNCTION web.done(answer jsonb) RETURNS void LANGUAGE sql AS 'SELECT'},
	q{CREATE FUNCTION web.never(answer jsonb) RETURNS void LANGUAGE plpgsql AS $f$ BEGIN RAISE 'never'; END $f$};
$pg->insert('destination', topic => 'told', kind => 'notify', url => 'told');
$pg->insert('destination', topic => 'lost', kind => 'webhook', url => 'http://127.0.0.1:1/', max_attempts => 1);
$pg->insert('budget', tenant => 'web', max_tokens => 1_000_000, max_cost => 1_000_000, period => '1 day');
$pg->insert('budget', tenant => 'thrifty', max_tokens => 1, period => '1 day');
$pg->endpoint(limited => $provider, requests_per_minute => 6000, tokens_per_minute => 1_000_000, max_in_flight => 10, input_price => 1, output_price => 1);
$pg->insert('queue', name => 'limited', endpoints => '{limited}', notify_done => 'true', max_ready => 1000);
$pg->insert('queue', name => 'hasty', endpoints => '{main}', max_deliveries => 2, redelivery_base => '1 ms', redelivery_cap => '1 ms', max_attempts => 1);
$provider->script({ match => '[job:bad]', responses => [ { status => 400 } ] }, { match => '[job:busy]', responses => [ { status => 503 } ] },
	{ match => '[job:held]', responses => [ { hold => 'held' }, {} ] });

# Runs SQL as web, and returns its output.
my $web = web_session();
sub web_session
{
	my $session = $pg->session;
	$session->query('SET SESSION AUTHORIZATION web');
	return $session;
}

sub as_web
{
	my ($sql) = @_;
	my $result = $web->query($sql);
	is($result->{sqlstate}, '00000', 'among overloads: ' . substr($sql =~ s/\s+/ /gr, 0, 60)) or diag($result->{err});
	return $result->{out};
}

sub submit_as_web { my (%arguments) = @_; return as_web('SELECT job_id FROM ' . LlmqTest::Cluster::submit_call(%arguments)) }

my @outbox = map { { topic => $_, payload => { to => 'you' } } } qw(told lost pulled);
my %state = (
	plain => submit_as_web(prompt => 'Go.', idempotency_key => 'plain', queue => 'limited', tenant => 'web', outbox => \@outbox),
	done  => submit_as_web(prompt => 'Go.', idempotency_key => 'done', on_complete => 'web.done', run_id => 'run', step => 'one'));
my %dead = (
	bad   => submit_as_web(prompt => '[job:bad]', idempotency_key => 'bad', outbox => [ { topic => 'told', payload => {}, on => 'dead' } ]),
	busy  => submit_as_web(prompt => '[job:busy]', idempotency_key => 'busy', queue => 'hasty'),
	never => submit_as_web(prompt => 'Go.', idempotency_key => 'never', on_complete => 'web.never', queue => 'hasty'));
$dead{child} = submit_as_web(prompt => 'Go.', idempotency_key => 'orphan', after => "{$dead{bad}}");
$state{child} = submit_as_web(prompt => 'Go.', idempotency_key => 'child', after => "{$state{plain}}");
$state{later} = submit_as_web(prompt => 'Go.', idempotency_key => 'later', run_at => '2000-01-01');
$state{many} = as_web(q{SELECT job_id FROM llmq.submit_many('[{"prompt": "Go.", "idempotency_key": "many"}]'::jsonb)});
as_web(q{SELECT status FROM llmq.http_submit('web'::text, 'POST'::text, '/x'::text, 'key'::text, '{"prompt": "Go."}'::jsonb)});
$pg->submit(prompt => 'Go.', idempotency_key => 'thrifty', tenant => 'thrifty');
$job = submit_as_web(prompt => 'Go.', idempotency_key => 'to be cancelled', run_at => '2100-01-01', queue => 'hasty');
is(as_web("SELECT llmq.cancel('$job'::uuid)"), 't', 'a job is cancelled');
is($pg->final_state($state{$_})->{state}, 'succeeded', "$_ succeeds among overloads") for sort keys %state;
is($pg->final_state($dead{$_})->{state}, 'dead', "$_ dies among overloads") for sort keys %dead;
as_web("CALL llmq.wait('$state{plain}'::uuid)");
as_web("SELECT count(*) FROM llmq.explain('$dead{busy}'::uuid)");
as_web("SELECT count(*) FROM llmq.$_") for qw(job_status dead_letter result attempt outbox outbox_event run usage queue_status outbox_status endpoint_status budget_status metric worker);

as_web(q{SELECT llmq.enqueue_outbox('pulled'::text, '{}'::jsonb, 'mine'::text)});
my ($id, $token) = split /[|\n]/, as_web(q{SELECT id, token FROM llmq.outbox_claim('pulled'::text)});
is(as_web("SELECT llmq.outbox_nack(CAST($id AS bigint), '$token'::uuid, 'later'::text)"), 't', 'a message is given back');
as_web(q{SELECT count(*) FROM llmq.outbox_claim('pulled'::text, 10, '1 s'::interval)});
$pg->sql(q{UPDATE llmq.message_lease SET expires_at = clock_timestamp() - interval '1 day' WHERE topic = 'pulled'});
as_web(q{SELECT count(*) FROM llmq.outbox_claim('pulled'::text, 10, '1 s'::interval)});
wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.outbox WHERE topic = 'lost' AND dead_at IS NOT NULL}) }, 20, 'a message is dead');
as_web(q{SELECT llmq.redrive_outbox('lost'::text)});

$token = as_web(q{SELECT token FROM llmq.idempotency_begin('s'::text, 'k'::text, 'f'::text)});
as_web("SELECT llmq.idempotency_finish('s'::text, 'k'::text, '$token'::uuid, 200, '{}'::jsonb)");
$token = as_web(q{SELECT token FROM llmq.idempotency_begin('s'::text, 'l'::text, 'f'::text)});
as_web("SELECT llmq.idempotency_release('s'::text, 'l'::text, '$token'::uuid)");
$token = as_web(q{SELECT token FROM llmq.step_begin('r'::text, 's'::text, '{}'::jsonb)});
as_web("SELECT llmq.step_finish('r'::text, 's'::text, '$token'::uuid, '{}'::jsonb)");
$token = as_web(q{SELECT token FROM llmq.step_begin('r'::text, 't'::text, '{}'::jsonb)});
as_web("SELECT llmq.step_release('r'::text, 't'::text, '$token'::uuid)");

# A worker that is lost with a call in hand, one that leaves, and retention, with which each begins.
my $held = submit_as_web(prompt => '[job:held]', idempotency_key => 'held', queue => 'limited');
$provider->wait_for_calls('held', 1);
$pg->kill_worker($pg->wait_for_worker);
is($pg->final_state($held, 40)->{state}, 'succeeded', 'a job of a lost worker is redelivered among overloads');
$web->disconnect;
$web = web_session();
is(as_web("SELECT llmq.redrive('$dead{busy}'::uuid)"), 't', 'a dead job is redriven');
cmp_ok(as_web(q{SELECT llmq.redrive_queue('default'::text)}), '>', 0, 'and those of a queue');
is($pg->final_state($dead{$_})->{state}, 'dead', "$_ dies again") for sort keys %dead;
is(as_web('SELECT count(*) FROM llmq.check()'), 0, 'llmq.check() finds nothing wrong');
as_web(q{SELECT llmq.resume_after_restore(), llmq.reset_breaker('main'::text)});
$pg->sql('SELECT llmq.prune_idempotency(100)');
$pg->insert('queue', name => 'default', retention => '1 ms');
$pg->sql(q{UPDATE llmq.queue SET retention = '1 ms'});
as_web('SELECT llmq.prune()');
$job = submit_as_web(prompt => 'Go.', idempotency_key => 'last');
wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.result WHERE job_id = '$job'") }, 20, 'the last job is done');
# A step of retention as a worker takes it: its own comes after minutes.
is($pg->sql(q{SELECT control -> 'pruned' FROM llmq.worker_poll(0::bigint, 0::bigint, 10, ''::text, '{"prune": true}'::jsonb, 0::bigint, ''::text)
	WHERE control IS NOT NULL}), 1, 'retention deletes what is old enough');
$pg->sql('CREATE ROLE remote LOGIN; SELECT llmq.grant_worker(\'remote\'::regrole)');

# -- types in a search_path -----------------------------------------------------------------------------

# What the statements of a program name is not found in a schema of somebody else's.
$pg->sql($_) for 'CREATE SCHEMA evil AUTHORIZATION mallory; CREATE TABLE evil.caught (who name); GRANT USAGE ON SCHEMA evil TO PUBLIC; GRANT INSERT ON evil.caught TO PUBLIC',
	q{CREATE FUNCTION evil.catch(value anyelement) RETURNS boolean LANGUAGE plpgsql AS $f$ BEGIN INSERT INTO evil.caught VALUES (current_user); RETURN true; END $f$},
	(map { "CREATE DOMAIN evil.$_ AS pg_catalog.$_ CHECK (evil.catch(VALUE))" } qw(bool text jsonb timestamptz uuid)),
	'ALTER DATABASE app SET search_path = evil, pg_catalog';
$pg->sql('SELECT llmq.stop_worker()');
wait_for(sub { !$pg->workers }, 20, 'the worker in the server has left');
my $program = start_program($pg, conninfo => $pg->conninfo('app', 'remote'));
$web->disconnect;
$web = web_session();
$job = as_web('SET search_path = public; SELECT job_id FROM ' . LlmqTest::Cluster::submit_call(prompt => 'Go.', idempotency_key => 'by program', policy => {}));
wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.result WHERE job_id = '$job'") }, 30, 'the program has done a job');
is($program->terminate, 0, 'the program leaves when it is told to');
is($pg->sql('SELECT count(*) FROM evil.caught'), 0, 'and has run nothing that was in its search_path');
$pg->sql('ALTER DATABASE app RESET search_path');

unlike($pg->log_text($log), qr/planted: /, 'and no overload was ever called');
is(is_powerless(), 't', 'nobody has become a superuser');
finish();
