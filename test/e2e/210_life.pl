# The launcher and its workers: switched on and off in every way there is, started again when they
# die, and out of the way, with 200 calls under way, when somebody needs the database; what they say of
# themselves, and what they do when the server has no connection or process left.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

# Nothing here may hang; how fast it is stands in the notes.
use constant HANG => 20;

my $provider = start_provider();
my $pg;
my $serial = 0;

# Tests that a job submitted now is done.
sub works
{
	my ($what) = @_;
	my $name = 'quick' . ++$serial;
	is($pg->final_state($pg->submit(prompt => "Quick. [job:$name]", idempotency_key => $name), 30)->{state}, 'succeeded', "$what: jobs are done");
	return;
}

sub workers_are
{
	my ($count, $what, $db) = @_;
	ok(wait_for(sub { $count == $pg->workers($db) }, 30, "$what: $count workers"), "$what: $count workers");
	return;
}

# Submits a job that nobody does now, and returns what the caller was told.
sub warning
{
	my ($name) = @_;
	return $pg->query('SELECT ' . LlmqTest::Cluster::submit_call(prompt => "Wait. [job:$name]", idempotency_key => $name))->{err};
}

sub set_and_reload { my (%conf) = @_; $pg->set(%conf); $pg->reload; return }

# -- not preloaded --------------------------------------------------------------

$pg = start_cluster();
$pg->create_database('app', extension => 1, provider => $provider);
works('CREATE EXTENSION, not preloaded');
$pg->restart;
like(warning('unserved'), qr/no worker serves this database.*shared_preload_libraries/s, 'after a restart submit says that nobody works, and what helps');
is($pg->sql('SELECT llmq.start_worker()'), 't', 'start_worker says that none ran');
works('start_worker, not preloaded');
is($provider->wait_for_calls('unserved', 1), 1, 'the job that waited is done too');
is($pg->sql('SELECT llmq.start_worker()'), 'f', 'start_worker says that one runs');
$pg->stop;

# -- switches -------------------------------------------------------------------

$pg = start_cluster(preload => 1);
$pg->create_database('other', extension => 1, provider => $provider);
$pg->create_database('app', extension => 1, provider => $provider);
$pg->restart;
workers_are(1, 'preloaded', $_) for qw(app other);
works('preloaded');

my @before = $pg->workers;
$pg->sql('BEGIN; SAVEPOINT s; SELECT llmq.stop_worker(); ROLLBACK TO s; COMMIT');
works('a stop_worker that was rolled back to a savepoint');
$pg->sql('BEGIN; SELECT llmq.stop_worker(); SELECT llmq.start_worker(); COMMIT');
works('stop_worker and then start_worker in one transaction');
is("@{[ $pg->workers ]}", "@before", 'it is the same worker all along');
$pg->sql('BEGIN; SELECT llmq.stop_worker(); ROLLBACK');
is($pg->sql('SELECT llmq.stop_worker()'), 't', 'stop_worker says that one ran, since a rolled back stop_worker did nothing');
workers_are(0, 'stop_worker');
like(warning('stopped'), qr/stopped with llmq\.stop_worker.*start_worker/s, 'submit says so');
$pg->disconnect;
$pg->reload;
workers_are(1, 'elsewhere all goes on', 'other');
is(scalar(my @none = $provider->calls('stopped')), 0, 'its job waits');
$pg->sql('SELECT llmq.start_worker()');
works('start_worker');
is($provider->wait_for_calls('stopped', 1), 1, 'the job that waited is done');
$pg->sql('BEGIN; SELECT llmq.start_worker(); SELECT llmq.stop_worker(); COMMIT');
workers_are(0, 'start_worker and then stop_worker in one transaction');
$pg->sql('SELECT llmq.start_worker()');
works('start_worker after both');

set_and_reload('llmq.workers' => 3);
workers_are(3, 'llmq.workers = 3');
workers_are(3, 'llmq.workers = 3', 'other');
ok(wait_for(sub { $pg->sql('SELECT count(DISTINCT name) FROM llmq.worker') == 3 }, 20, 'all have said hello'), 'each has a name of its own');
works('three workers');
set_and_reload('llmq.workers' => 0);
workers_are(0, 'llmq.workers = 0');
like(warning('nobody'), qr/llmq\.workers is 0/, 'submit says so');
set_and_reload('llmq.workers' => 1);
workers_are(1, 'llmq.workers = 1');
is($provider->wait_for_calls('nobody', 1), 1, 'the job that waited is done');

set_and_reload('llmq.databases' => 'other');
workers_are(0, 'llmq.databases names another');
workers_are(1, 'llmq.databases names it', 'other');
like(warning('excluded'), qr/llmq\.databases does not name this database/, 'submit says so');
set_and_reload('llmq.databases' => '');
workers_are(1, 'llmq.databases is empty');
is($provider->wait_for_calls('excluded', 1), 1, 'the job that waited is done');

set_and_reload('llmq.enabled' => 'off');
workers_are(0, 'llmq.enabled = off', $_) for qw(app other);
like(warning('disabled'), qr/llmq\.enabled is off/, 'submit says so');
$pg->restart;
set_and_reload('llmq.enabled' => 'on'); # the launcher may be starting: this is not lost
workers_are(1, 'llmq.enabled = on', $_) for qw(app other);
works('llmq.enabled = on');
is($provider->wait_for_calls('disabled', 1), 1, 'the job that waited is done');

# -- a worker that keeps dying ---------------------------------------------------

$pg->sql('SELECT llmq.start_worker()');
my @gaps;
my $worker = $pg->wait_for_worker;
for my $death (1 .. 4)
{
	# Not from when its end is seen: that may be late.
	my $died = now();
	kill 'TERM', $worker;
	wait_for(sub { is_gone($worker) }, 20, 'the worker has ended');
	last if $death == 4;
	$worker = $pg->wait_for_worker;
	push @gaps, now() - $died;
}
note('a worker that kept dying was back after ' . join(', ', map { sprintf '%.1f s', $_ } @gaps));
cmp_ok($gaps[1], '>=', 1.9, 'a worker that keeps dying young is restarted later');
cmp_ok($gaps[2], '>=', 3.9, 'and later');
like(warning('dying'), qr/keep ending soon after their start/, 'submit says so');
my $ordered = now();
$pg->sql('SELECT llmq.start_worker()');
works('start_worker after early deaths');
cmp_ok(now() - $ordered, '<', 7, 'and does not wait for the 8 s that were due');

# -- no process is free ------------------------------------------------------------

my $full = start_cluster(preload => 1, conf => { max_worker_processes => 3, max_logical_replication_workers => 0 });
my $preloaded = $pg;
$pg = $full;
$pg->create_database('first', extension => 1, provider => $provider);
$pg->wait_for_worker;
$pg->create_database('second', extension => 1, provider => $provider);
wait_for(sub { $pg->log_text =~ /no background worker process is free/ }, 20, 'the log says that no process is free');
like($pg->log_text, qr/could not start an llmq worker.*HINT:  Increase max_worker_processes \(now 3\)/s, 'with max_worker_processes used up the log says what to do');
like(warning('crowded'), qr/All background worker processes are in use.*max_worker_processes/s, 'and so does submit');
$pg->sql('SELECT llmq.stop_worker()', 'first');
is($provider->wait_for_calls('crowded', 1, 40), 1, 'when a process is free again the worker starts by itself');
is(scalar(my @said = $pg->log_text =~ /could not start an llmq worker/g), 1, 'it was said once');
$pg->check;
$pg->stop;

$pg = start_cluster(conf => { max_worker_processes => 0 });
$pg->create_database('app');
like($pg->query('CREATE EXTENSION llmq')->{err}, qr/could not start llmq.*max_worker_processes.*start_worker/s, 'not preloaded, CREATE EXTENSION says it');
$pg->check;
$pg->stop;

# -- 200 calls under way --------------------------------------------------------------

use constant MANY => 200;
$pg = $preloaded;
$pg->disconnect_all;
$pg->sql("DROP DATABASE other", 'postgres');

# Submits jobs whose calls are answered when $name is released, and waits until all are called.
sub submit_many
{
	my ($name) = @_;
	$pg->insert('queue', name => $name, call_timeout => '200 s', deadline => '210 s', max_deliveries => 3);
	$provider->script({ match => "[job:$name-", responses => [ { hold => $name } ] });
	$pg->sql("SELECT count(llmq.submit(prompt => 'Slow. [job:$name-' || n || ']', idempotency_key => '$name-' || n, queue => '$name',
		outbox => '[{\"topic\": \"mail\", \"payload\": {}}]')) FROM generate_series(1, @{[MANY]}) AS n");
	return all_called($name, 1);
}

sub calls_of { my ($name) = @_; return grep { $_->{job} =~ /^$name-/ } $provider->calls }

# Waits until each job has been called $times times, the last one being open.
sub all_called
{
	my ($name, $times) = @_;
	return wait_for(sub { calls_of($name) == MANY * $times && MANY == grep { !$_->{how} } calls_of($name) }, 60, "all of $name are called $times times");
}

# Runs something that must not wait for calls under way.
sub timed
{
	my ($what, $do) = @_;
	my $began = now();
	$do->();
	my $took = now() - $began;
	note(sprintf '%s with %d calls under way: %.2f s', $what, MANY, $took);
	cmp_ok($took, '<', HANG, "$what does not wait for calls under way");
	return;
}

sub all_done
{
	my ($name) = @_;
	ok(wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.job_status WHERE queue = '$name' AND state = 'succeeded'") == MANY }, 60, "all of $name are done"),
		"all of $name are done");
	is($pg->sql("SELECT count(*) FROM llmq.outbox JOIN llmq.job USING (job_id) WHERE queue = '$name'"), MANY, 'each has its message');
	return;
}

ok(submit_many('busy'), '200 calls are under way');
$worker = $pg->wait_for_worker;
timed('reload', sub { set_and_reload('llmq.poll_interval' => '1s'); works('after a reload') });
timed('TRUNCATE llmq.attempt', sub { $pg->sql('TRUNCATE llmq.attempt') });
$pg->sql(q{DELETE FROM llmq.result});
$pg->sql(q{DELETE FROM llmq.job WHERE queue = 'default'});
my @tables = map { $_->{relname} } $pg->rows(q{SELECT relname FROM pg_class WHERE relnamespace = 'llmq'::regnamespace AND relkind = 'r' ORDER BY 1});
timed('VACUUM FULL of ' . @tables . ' tables', sub { $pg->sql("VACUUM FULL llmq.$_") for @tables });
works('after VACUUM FULL');
is(scalar(calls_of('busy')), MANY, 'none of the 200 was called again');
is(scalar(grep { $_->{how} } calls_of('busy')), 0, 'nor ended');
is($pg->wait_for_worker, $worker, 'the worker is the same');

my $dump = test_dir() . '/dump.sql';
LlmqTest::Cluster::run(LlmqTest::Cluster::program('pg_dump'), '-h', $pg->socket_dir, '-p', 5432, '-U', 'postgres', '-f', $dump, 'app');

timed('terminate', sub { $pg->sql("SELECT pg_terminate_backend($worker)"); wait_for(sub { is_gone($worker) }, 60, 'the worker has ended') });
ok(all_called('busy', 2), 'another worker goes on');

$pg->disconnect_all;
timed('CREATE DATABASE TEMPLATE', sub { $pg->sql('CREATE DATABASE copy TEMPLATE app', 'postgres') });
ok(all_called('busy', 3), 'a worker comes back when the copy is made');
$pg->disconnect_all;
timed('ALTER DATABASE RENAME', sub { $pg->sql('ALTER DATABASE app RENAME TO renamed', 'postgres') });
$pg->use_database('renamed');
ok(all_called('busy', 4), 'a worker comes back when the database has its new name');
timed('fast shutdown', sub { $pg->stop('fast') });
$pg->start;
ok(all_called('busy', 5), 'a worker comes back with the server');

# Neither the copy nor a restored dump calls anybody before it is told to.
# Loads a dump, between whose schema and data the worker has time to start and to look around.
sub restore
{
	my ($file, $db) = @_;
	$pg->sql("CREATE DATABASE $db", 'postgres');
	my $text = do { local (@ARGV, $/) = $file; <> };
	my ($head, $schema, $data) = $text =~ /\A(.*?\n)(CREATE SCHEMA.*?\nCREATE EXTENSION [^;]*llmq[^;]*;\n)(.*)\z/s or die "this dump is strange\n";
	for my $part ("$head$schema", "$head$data")
	{
		open(my $out, '>', "$file.part") or die "$file.part: $!\n";
		print {$out} $part;
		close $out;
		LlmqTest::Cluster::run($pg->psql_command($db), '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$file.part");
		wait_for(sub { $pg->sql('SELECT string_agg(state, $$ $$) FROM llmq.worker', $db) ne '' }, 20, 'its worker has said hello');
	}
	return;
}

restore($dump, 'restored');
for my $db (qw(copy restored))
{
	ok(wait_for(sub { $pg->sql('SELECT string_agg(state, $$ $$) FROM llmq.worker', $db) eq 'quarantined' }, 60, "$db is quarantined"),
		"the worker of database $db is in quarantine");
}
isnt($pg->sql("WITH aged AS (UPDATE llmq.lease SET claimed_at = claimed_at - interval '1 day', deadline = deadline - interval '1 day' RETURNING 1)
	SELECT count(*) FROM aged", 'restored'), 0, 'the leases that it was restored with grow old there');
is(scalar(calls_of('busy')), 5 * MANY, 'no call was made from there');

$provider->release('busy');
all_done('busy');
is(scalar(calls_of('busy')), 5 * MANY, 'five calls for each job, four of which were cut off with their worker');
is($pg->sql(q{SELECT string_agg(DISTINCT concat_ws(' ', a.delivery, a.outcome, a.error_class), ', ') FROM llmq.attempt AS a JOIN llmq.job USING (job_id) WHERE queue = 'busy'}),
	'1 retry interrupted, 2 retry interrupted, 3 retry interrupted, 4 retry interrupted, 5 success', 'all are on record');
$pg->check;

my $calls = 5 * MANY;
for my $db (qw(copy restored))
{
	$pg->use_database($db);
	$pg->sql('SELECT llmq.resume_after_restore()');
	all_done('busy');
	is(scalar(calls_of('busy')), $calls += MANY, "told to, database $db does its jobs");
}

$pg->use_database('copy');
ok(submit_many('doomed'), '200 calls are under way');
$pg->disconnect_all;
timed('DROP DATABASE', sub { $pg->sql('DROP DATABASE copy', 'postgres') });
wait_for(sub { MANY == grep { $_->{how} } calls_of('doomed') }, 20, 'its calls have ended');
is(scalar(grep { $_->{how} eq 'client_closed' } calls_of('doomed')), MANY, 'its calls ended with it');
workers_are(0, 'no worker of a dropped database is left', 'copy');
is($pg->log_text =~ /FATAL:  database \d+ does not exist/ ? 1 : 0, 0, 'nor tries to come back');

$pg->check;
$pg->stop;

# -- llmq.max_in_flight --------------------------------------------------------------------

# Submits jobs that are called and not answered before $name is released.
sub submit_held
{
	my ($name, $count) = @_;
	$provider->script({ match => "[job:$name-", responses => [ { hold => $name } ] });
	return map { $pg->submit(prompt => "Go. [job:$name-$_]", idempotency_key => "$name-$_", policy => { call_timeout => '200 s', deadline => '210 s' }) } 1 .. $count;
}

# The jobs succeed, each with the one call that was made.
sub done_with_one_call
{
	my ($name, $what, @jobs) = @_;
	is_deeply([ map { $pg->final_state($_, 60)->{state} } @jobs ], [ ('succeeded') x @jobs ], "$what: the calls under way end well");
	is(scalar(calls_of($name)), scalar(@jobs), "$what: and are not made again");
	return;
}

$pg = start_cluster(preload => 1, conf => { 'llmq.max_in_flight' => 5 });
$pg->create_database('app', extension => 1, provider => $provider);
my @jobs = submit_held('few', 50);
for my $limit (5, 12, 50)
{
	set_and_reload('llmq.max_in_flight' => $limit);
	ok(wait_for(sub { calls_of('few') == $limit }, 30, "$limit calls are open"), "llmq.max_in_flight = $limit: so many calls are open, from the reload on");
}
$provider->release('few');
done_with_one_call('few', 'llmq.max_in_flight', @jobs);

# -- what its processes say of themselves -------------------------------------------------------

$pg->sql('CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
my $watcher = $pg->session('app');
$watcher->query('SET SESSION AUTHORIZATION watcher');

sub activity
{
	my ($type) = @_;
	return $watcher->query("SELECT state || ': ' || query FROM pg_stat_activity WHERE backend_type = 'llmq $type'")->{out};
}

my $at_rest = 'idle: running: 0 calls under way, 0 jobs and 0 messages in hand';
ok(wait_for(sub { activity('worker') eq $at_rest }, 10, 'the worker is idle'), 'an idle worker says that it has nothing in hand');
is(activity('callback worker'), 'idle: waits for answers to settle', 'a callback worker says that it waits');
is(activity('launcher'), 'idle: keeps the workers of llmq running', 'the launcher says what it is there for');
@jobs = submit_held('held', 1);
$provider->wait_for_calls('held-1', 1);
ok(wait_for(sub { activity('worker') =~ /^idle: running: 1 calls under way, 1 jobs/ }, 10, 'the worker has a call'), 'a worker that calls says how many');
$provider->release('held');
done_with_one_call('held', 'watched', @jobs);
$pg->sql('UPDATE llmq.home SET system_identifier = system_identifier + 1; SELECT llmq_internal.wake_worker()');
ok(wait_for(sub { activity('worker') =~ /^idle: quarantined: / }, 20, 'the worker notices'), 'one that may not call says why');
$pg->sql('SELECT llmq.resume_after_restore()');
$watcher->disconnect;
$pg->check;
$pg->stop;

# -- no connection, no process left ----------------------------------------------------------------------

$pg = start_cluster(preload => 1, conf => { max_connections => 8, superuser_reserved_connections => 1, max_worker_processes => 4,
	'llmq.workers' => 1, max_logical_replication_workers => 0 });
$pg->create_database('app', extension => 1, provider => $provider);
$worker = $pg->wait_for_worker;
$pg->sql(q{CREATE ROLE crowd LOGIN; SELECT llmq.grant_submit('crowd')});
@jobs = submit_held('crowded', 5);
wait_for(sub { calls_of('crowded') == 5 }, 30, 'all are called');
my @crowd = map { LlmqTest::Session->new(LlmqTest::Cluster::program('psql'), '-h', $pg->socket_dir, '-p', 5432, '-U', 'crowd', '-d', 'app') } 1 .. 10;
my @states = map { $_->query('SELECT 1')->{sqlstate} } @crowd;
cmp_ok(scalar(grep { !defined } @states), '>', 0, 'no connection left: a client is turned away');
$provider->release('crowded');
done_with_one_call('crowded', 'no connection left', @jobs);
$pg->sql("SELECT pg_terminate_backend($worker)");
wait_for(sub { is_gone($worker) }, 20, 'the worker has ended');
works('no connection left, a worker that has ended is replaced even so');
$_->disconnect for @crowd;

$pg->disconnect_all;
$pg->sql('CREATE DATABASE more', 'postgres');
$pg->sql('CREATE DATABASE most', 'postgres');
$pg->sql('CREATE EXTENSION llmq', $_) for qw(more most);
ok(wait_for(sub { $pg->log_text =~ /could not start an? llmq [\w ]+ for database \d+: no background worker process is free/ }, 30, 'the log speaks'),
	'no process left: the log says so');
like($pg->log_text, qr/HINT:  Increase max_worker_processes \(now 4\)/, 'no process left: and what helps');
works('no process left, the databases that have theirs');
$pg->disconnect_all;
$pg->sql("DROP DATABASE $_", 'postgres') for qw(app more);
$pg->use_database('most');
$pg->endpoint(main => $provider);
works('no process left, when there are some again the waiting database gets its own');

finish();
