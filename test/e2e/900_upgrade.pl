# ALTER EXTENSION llmq UPDATE from each older release, in a server that runs this version's module
# already: nobody is called before it, nothing is lost in it, and what comes out is what a fresh
# install would be.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $frozen = "$FindBin::Bin/../upgrade";

sub read_file
{
	my ($path) = @_;
	open(my $file, '<', $path) or die "$path: $!\n";
	local $/;
	return <$file>;
}

my @releases = map { m{llmq--([\d.]+)\.sql\z} ? $1 : () } sort glob "$frozen/llmq--*.sql";
my ($version) = read_file("$FindBin::Bin/../../extension/llmq.control") =~ /^default_version = '([\d.]+)'$/m;

# A stage of our own, where the releases' install scripts stand beside this version's.
my $stage = test_dir() . '/stage';
my $scripts = $stage . LlmqTest::Cluster::config('sharedir') . '/extension';
LlmqTest::Cluster::run('cp', '-a', $ENV{LLMQ_STAGE}, $stage);
LlmqTest::Cluster::run('cp', map({ "$frozen/llmq--$_.sql" } @releases), $scripts);

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '300ms', LlmqTest::Cluster::stage_settings($stage) });
$pg->sql('CREATE ROLE web; CREATE ROLE operator; CREATE ROLE remote; CREATE ROLE reader');

# Gives roles what they are given in both databases that are compared.
sub give_rights
{
	my ($db) = @_;
	$pg->sql(q{SELECT llmq.grant_submit('web'), llmq.grant_admin('operator'), llmq.grant_worker('remote');
		GRANT USAGE ON SCHEMA llmq TO reader; GRANT SELECT ON llmq.job TO reader}, $db);
	return;
}

sub catalog
{
	my ($db) = @_;
	my $sql = read_file("$frozen/catalog.sql");
	return map { $_->{line} } $pg->rows("SELECT * FROM ($sql) AS f (line)", $db);
}

sub dumped_rights
{
	my ($db) = @_;
	$pg->disconnect_all;
	my $dump = LlmqTest::Cluster::run(LlmqTest::Cluster::program('pg_dump'), '-h', $pg->socket_dir, '-p', 5432, '-U', 'postgres',
		'--schema-only', $db);
	return sort grep { /^(?:GRANT|REVOKE)/ } split /\n/, $dump;
}

$pg->create_database('fresh', extension => 1);
give_rights('fresh');
my @fresh = catalog('fresh');
my @fresh_rights = dumped_rights('fresh');
cmp_ok(scalar(@fresh), '>', 500, 'a fresh install is known in detail');
ok((grep { /submit.*web/ } @fresh_rights), 'a dump of it has the rights of roles');
for my $role (qw(web operator))
{
	ok((grep { /^GRANT USAGE ON SCHEMA llmq_internal TO $role;/ } @fresh_rights), "a dump has the right of $role to use schema llmq_internal");
}
ok((grep { /FUNCTION llmq_internal\.may_see\(.*web/ } @fresh_rights), 'a dump has the rights of roles on functions in schema llmq_internal');

# Tests that two lists are the same, and shows what is not.
sub same_lines
{
	my ($got, $expected, $name) = @_;
	my (%got, %expected);
	@got{@{$got}} = @expected{@{$expected}} = ();
	my @differences = (map({ "more: $_" } grep { !exists $expected{$_} } @{$got}), map({ "less: $_" } grep { !exists $got{$_} } @{$expected}));
	is(join("\n", @differences), '', $name);
	return;
}

# Makes a schema of the name that this version uses, in which every function behind one in C stands a second time.
sub set_traps
{
	$pg->sql(q{CREATE SCHEMA llmq_internal; GRANT USAGE ON SCHEMA llmq_internal TO PUBLIC; DO $$
		DECLARE
			f record;
		BEGIN
			FOR f IN
				SELECT proname, pg_get_function_arguments(oid) AS arguments, pg_get_function_result(oid) AS result FROM pg_proc
				WHERE pronamespace = 'llmq'::regnamespace AND proname ~ '(_as|_now)$|^(wait_look|settler_look|has_program)$'
			LOOP
				EXECUTE format('CREATE FUNCTION llmq_internal.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE ''trapped''; END $f$',
					f.proname, f.arguments, f.result);
			END LOOP;
		END
		$$});
	return;
}

# Calls what C has to find the other half of: a function, a set, and a procedure.
sub call_all
{
	my ($session, $job, $when) = @_;
	my $cancelled = $session->query("SELECT llmq.cancel('$job')");
	is($cancelled->{out}, 'f', "$when a session calls a function that runs as llmq's owner") or diag($cancelled->{err});
	my $many = $session->query(q{SELECT count(*) FROM llmq.submit_many('[]')});
	is($many->{out}, '0', "$when a session calls a function that returns a set") or diag($many->{err});
	my $status = $session->query("CALL llmq.wait('$job')");
	like($status->{out}, qr/"state": "cancelled"/, "$when a session waits for a job") or diag($status->{err});
	return;
}

# What 0.1.0 took for a list of classes.
my %fallback_on = ('0.1.0' => '{context_length,contxt_length,NULL}');

sub upgrade_from
{
	my ($release) = @_;
	my $db = 'from_' . $release =~ tr/./_/r;
	my $key = 0;
	my $prompt = sub { return (prompt => "Upgrade. [job:$release-$_[0]]", idempotency_key => $_[0]) };

	$pg->create_database($db);
	$pg->sql("CREATE EXTENSION llmq VERSION '$release'");
	give_rights($db);
	if ($pg->has_programs)
	{
		my ($program) = $pg->start_programs;
		is($program->exit_code, 3, "from $release: before the update a program ends, since it is outdated");
	}
	else
	{
		wait_for(sub { $pg->sql('SELECT state FROM llmq.worker') eq 'outdated' }, 20, 'the worker has said hello');
		pass("from $release: before the update the worker is outdated");
	}
	wait_for(sub { $pg->log_text =~ /this worker makes no calls: .* speaks protocol .*ALTER EXTENSION llmq UPDATE/ }, 20, 'the log says so');
	pass('the log says so, and what helps');

	# The state of a server that stopped in the middle of its work.
	$pg->endpoint(main => $provider);
	$pg->insert('queue', name => 'slow', max_in_flight => 7, fallback_on => $fallback_on{$release} // '{context_length}');
	$pg->insert('destination', topic => 'mail.*', kind => 'webhook', url => 'http://127.0.0.1:9/');
	$pg->sql('CREATE TABLE called (job jsonb)');
	$pg->sql('CREATE FUNCTION public.note(job jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.called VALUES (job) $$');
	my %job;
	$job{$_} = $pg->submit($prompt->($_), outbox => [ { topic => 'mail.done', payload => { job => $_ } } ]) for qw(ready running);
	$job{called} = $pg->submit($prompt->('called'), on_complete => 'public.note');
	$job{scheduled} = $pg->submit($prompt->('scheduled'), run_at => '2100-01-01');
	$job{cancelled} = $pg->submit($prompt->('cancelled'));
	$job{dead} = $pg->submit($prompt->('dead'), outbox => [ { topic => 'mail.dead', payload => {}, on => 'dead' } ]);
	$job{child} = $pg->sql("SELECT job_id FROM llmq.submit('Upgrade. [job:$release-child]', 'child', after => ARRAY['$job{ready}'::uuid])");
	$pg->sql("SELECT llmq.cancel('$job{cancelled}')");
	$pg->sql("INSERT INTO llmq.worker_session (name, kind, pid, backend_start, heartbeat, in_flight) VALUES ('lost', 'server', 1, now(), now(), 2)");
	$pg->sql(qq{SELECT * FROM llmq.worker_claim((SELECT id FROM llmq.worker_session WHERE name = 'lost'),
		ARRAY(SELECT seq FROM llmq.ready WHERE job_id IN ('$job{running}', '$job{dead}')))});
	$pg->sql(qq{SELECT * FROM llmq.worker_settle((SELECT id FROM llmq.worker_session WHERE name = 'lost'),
		'[{"job_id": "$job{dead}", "delivery": 1, "outcome": "dead", "error_class": "bad_request", "error_message": "no", "attempts": []}]')});
	is($pg->sql('SELECT string_agg(place, $$ $$ ORDER BY place) FROM llmq.job_place'),
		'blocked cancelled_job dead_job deferred lease ready ready', 'jobs stand everywhere');
	is($pg->sql('SELECT count(*) FROM llmq.outbox'), 1, 'a message waits');
	is(scalar(my @none = grep { $_->{job} =~ /^$release-/ } $provider->calls), 0, 'nobody has been called');

	# The new module serves the SQL of the release, whoever has made a schema of that name.
	my $kept = $pg->session;
	set_traps();
	call_all($kept, $job{cancelled}, 'before the update');
	my $refused = $pg->query('ALTER EXTENSION llmq UPDATE');
	is($refused->{sqlstate}, '42P06', 'the update is refused while there is a schema llmq_internal');
	like($refused->{err}, qr/HINT:.*RENAME/, 'and says what to do with it');
	$pg->sql('DROP SCHEMA llmq_internal CASCADE');
	$pg->sql(q{CREATE FUNCTION llmq.of_a_user() RETURNS int LANGUAGE sql AS 'SELECT 1'});

	# Somebody submits all the time.
	my $busy = $pg->session;
	$busy->send("BEGIN; SELECT job_id FROM llmq.submit('Upgrade. [job:$release-late]', 'late'); COMMIT");
	$job{late} = $busy->result->{out};
	my $open = $pg->session;
	$open->query(q{BEGIN; SELECT count(*) FROM llmq.job_status});
	my $slow = $pg->session;
	$slow->query('BEGIN; LOCK TABLE llmq.destination IN ROW EXCLUSIVE MODE');
	my $update = $pg->session;
	$update->send('ALTER EXTENSION llmq UPDATE');
	$open->query('COMMIT');
	# While it is in the middle, two more submit: one as before, one through a set.
	my $waits = sub {
		my ($what, $count) = @_;
		wait_for(sub { $pg->sql("SELECT count(*) FROM pg_locks WHERE NOT granted AND $what") == $count }, 20, "$count sessions wait for a lock: $what");
	};
	$waits->(q{relation = 'llmq.destination'::regclass}, 1);
	$busy->send("SELECT job_id FROM llmq.submit('Upgrade. [job:$release-meanwhile]', 'meanwhile')");
	$kept->send(q{SELECT count(*) FROM llmq.submit_many('[]')});
	$waits->(q{classid = 'pg_namespace'::regclass AND objid = 'llmq'::regnamespace}, 2);
	$slow->query('COMMIT');
	my $result = $update->result;
	is($result->{sqlstate}, '00000', 'ALTER EXTENSION UPDATE succeeds') or diag($result->{err});
	$result = $busy->result;
	is($result->{sqlstate}, '00000', 'a job that is submitted during the update is submitted after it') or diag($result->{err});
	$job{meanwhile} = $result->{out};
	$result = $kept->result;
	is($result->{sqlstate}, '00000', 'a set function that is called during the update runs after it') or diag($result->{err});
	$pg->start_programs if $pg->has_programs;		# as whatever keeps it running does
	is($pg->sql(q{SELECT extversion FROM pg_extension WHERE extname = 'llmq'}), $version, 'this is the version then');
	call_all($kept, $job{cancelled}, 'after the update');
	$kept->disconnect;
	is($pg->sql('SELECT llmq.of_a_user()'), 1, "a user's own function stays in schema llmq");
	$pg->sql('DROP FUNCTION llmq.of_a_user()');

	for my $name (qw(ready running called child late meanwhile))
	{
		is($pg->final_state($job{$name}, 30)->{state}, 'succeeded', "the job that was $name is done");
		is(scalar(my @calls = $provider->calls("$release-$name")), 1, 'with one call');
	}
	ok(wait_for(sub { $pg->sql('SELECT count(*) FROM called') == 1 }, 20, 'on_complete'), 'its function was called');
	is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$job{$_}'"), $_, "what was $_ is so still") for qw(scheduled cancelled dead);
	is($pg->sql("SELECT string_agg(concat_ws(' ', delivery, attempt, outcome, billing), ', ' ORDER BY delivery) FROM llmq.attempt WHERE job_id = '$job{running}'"),
		'1 0 retry unknown, 2 1 success billed', 'the call that was cut off is on record');
	is($pg->sql(q{SELECT string_agg(topic, ' ' ORDER BY id) FROM llmq.outbox}), 'mail.dead mail.done mail.done', 'messages are kept and added');
	is($pg->sql(q{SELECT max_in_flight FROM llmq.queue WHERE name = 'slow'}), 7, 'the configuration is kept');
	is($pg->sql(q{SELECT fallback_on FROM llmq.queue WHERE name = 'slow'}), '{context_length}', 'fallback_on keeps the classes of errors, and nothing else');
	is($pg->sql("SELECT llmq.redrive('$job{dead}')"), 't', 'a dead job can be redriven');
	is($pg->final_state($job{dead}, 30)->{state}, 'succeeded', 'and is done');
	is($pg->sql("SELECT replayed FROM " . LlmqTest::Cluster::submit_call($prompt->('late'))), 't', 'an old key is known');

	$pg->disconnect_all;
	same_lines([ catalog($db) ], \@fresh, 'the catalog is that of a fresh install');
	same_lines([ dumped_rights($db) ], \@fresh_rights, 'and a dump has the same rights');
	return;
}

is(join(' ', @releases), join(' ', sort map { m{llmq--([\d.]+)--\Q$version\E\.sql\z} ? $1 : () } glob "$scripts/llmq--*--*.sql"),
	'each release that can be updated from is tested');

# The last major version that takes a release's script.
my %last_major = ('0.1.0' => 16);
for my $release (@releases)
{
	SKIP:
	{
		my $last = $last_major{$release};
		skip "$release is not for this major version of PostgreSQL", 1 if $last && LlmqTest::Cluster::major() > $last;
		upgrade_from($release);
	}
}

# -- a schema that is there already --------------------------------------------------------------

$pg->create_database('taken');
$pg->sql('CREATE SCHEMA llmq_internal');
my $refused = $pg->query('CREATE EXTENSION llmq');
is($refused->{sqlstate}, '42P06', 'CREATE EXTENSION is refused while there is a schema llmq_internal');
like($refused->{err}, qr/DETAIL:.*HINT:.*RENAME/s, 'CREATE EXTENSION says why there can be no schema llmq_internal, and what to do with it');
$pg->sql('ALTER SCHEMA llmq_internal RENAME TO mine; CREATE EXTENSION llmq');
is($pg->sql(q{SELECT count(*) FROM pg_namespace WHERE nspname IN ('mine', 'llmq_internal')}), 2, 'CREATE EXTENSION succeeds once the schema has another name');
$pg->sql('DROP EXTENSION llmq CASCADE');
is($pg->sql(q{SELECT count(*) FROM pg_namespace WHERE nspname = 'llmq_internal'}), 0, 'DROP EXTENSION takes schema llmq_internal with it');
$pg->disconnect_all;

# -- a module that is older than the SQL -------------------------------------------------------

# This version's module, without the function by which an update knows it.
my $older = test_dir() . '/older';
LlmqTest::Cluster::run('cp', '-a', $stage, $older);
my $library = $older . LlmqTest::Cluster::config('pkglibdir') . '/llmq.so';
my $renamed = (my $bytes = read_file($library)) =~ s/llmq_module_version_1/llmq_module_version_0/g;
cmp_ok($renamed, '>', 0, 'there is a function by which an update knows the module');
open(my $file, '>:raw', $library) or die "$library: $!\n";
print {$file} $bytes;
close $file or die "$library: $!\n";
my $unrestarted = start_cluster(preload => 1, conf => { LlmqTest::Cluster::stage_settings($older) });
$unrestarted->create_database('app');
$unrestarted->sql("CREATE EXTENSION llmq VERSION '0.2.0'");
$refused = $unrestarted->query('ALTER EXTENSION llmq UPDATE');
is($refused->{sqlstate}, '55000', 'the update is refused by a server that runs an older module');
like($refused->{err}, qr/HINT:.*Restart the server/, 'the update says that the server must be restarted');
is($unrestarted->sql(q{SELECT replayed FROM llmq.submit('Hello.', 'one')}), 'f', 'after an update that was refused jobs can be submitted');

$pg->use_database('fresh');
for my $protocol (1, 2)
{
	my ($id, $state) = split ' ',
		$pg->sql(qq{SELECT worker_id || ' ' || state FROM llmq.worker_hello($protocol, 'old $protocol', 'server', pg_backend_pid(), NULL)});
	is($state, 'outdated', "a worker that speaks protocol $protocol of an older release is outdated");
	is($pg->query("SELECT * FROM llmq.worker_claim($id, '{1}')")->{sqlstate}, '55000', "a worker that speaks protocol $protocol cannot claim");
}

finish();
