# Ways to the rights of the workers, which have all: a schema that was there before the extension.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '200ms' });
$pg->sql('CREATE ROLE mallory LOGIN CREATEDB; CREATE ROLE dba SUPERUSER');

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
	"CREATE SCHEMA llmq; CREATE FUNCTION llmq_internal.prune_step(text) RETURNS bigint $takes_over; CREATE FUNCTION llmq_internal.lost_sessions(text) RETURNS int $takes_over");
is_refused('a schema that was given away, with functions', 55000, 'not empty.*lost_sessions',
	"CREATE SCHEMA llmq; CREATE FUNCTION llmq_internal.lost_sessions(text) RETURNS int $takes_over", 'ALTER SCHEMA llmq OWNER TO postgres');
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
is_refused("a schema with a $_", 55000, 'schema "llmq" is not empty', '', "CREATE SCHEMA llmq; $things{$_}") for sort keys %things;

prepare_database('SELECT 1', 'CREATE SCHEMA llmq AUTHORIZATION dba');
is($pg->query('CREATE EXTENSION llmq')->{sqlstate}, '00000', 'an empty schema of another superuser, as a restore makes it, is taken');
$pg->endpoint(main => $provider);
is($pg->final_state($pg->submit(prompt => 'Hello.', idempotency_key => 'restored'))->{state}, 'succeeded', 'and the worker works there');
is(is_powerless(), 't', 'and nobody has become a superuser');

finish();
