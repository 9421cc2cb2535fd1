# The programs of test/examples do what they say, beside what people use: psycopg, node-postgres, FastAPI
# behind PgBouncer, Express, triggers, pg_cron, PostgREST, the openai SDK, and an agent that is killed.  What
# test/setup-debian or test/setup-npm could not install is skipped.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use HTTP::Tiny;
use JSON::PP;
use LlmqTest;
use LlmqTest::Process;
use POSIX ();
use Test::More;

my $examples = "$FindBin::Bin/../examples";
my $modules = "$FindBin::Bin/../../build/node_modules";
my $has_cron = -e LlmqTest::Cluster::config('pkglibdir') . '/pg_cron.so';
my $has_fastapi = -x '/usr/sbin/pgbouncer' && system('/usr/bin/python3', '-c', 'import fastapi, uvicorn, psycopg_pool') == 0;
my $provider = start_provider(args => ['--bodies']);
my $pg = start_cluster(preload => 1, conf => { $has_cron ? (shared_preload_libraries => 'llmq, pg_cron', 'cron.database_name' => 'app',
	'cron.use_background_workers' => 'on') : () });
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;
$pg->sql(q{CREATE ROLE web LOGIN; SELECT llmq.grant_submit('web');
	INSERT INTO llmq.role_tenant VALUES ('web', 'acme');
	INSERT INTO llmq.queue (name, notify_done) VALUES ('tickets', true);
	CREATE TABLE ticket (id int GENERATED ALWAYS AS IDENTITY, body text CHECK (body <> 'bad'), summary_job uuid);
	CREATE TABLE customer_order (id int PRIMARY KEY, state text);
	CREATE TABLE refund (order_id int);
	INSERT INTO customer_order VALUES (7, 'lost in the post');
	GRANT ALL ON ticket, customer_order, refund TO web});
$ENV{PYTHONDONTWRITEBYTECODE} = 1;
@ENV{qw(PGHOST PGPORT PGDATABASE PGUSER)} = ($pg->socket_dir, 5432, 'app', 'web');

sub read_file
{
	my ($path) = @_;
	open(my $file, '<', $path) or return '';
	local $/;
	return <$file> // '';
}

# Runs an example to its end and returns what it printed; dies if it fails.
sub run_example { my ($program, $name, @args) = @_; return LlmqTest::Cluster::run($program, "$examples/$name", @args) }

# Runs a file of SQL as the superuser, changed by a function first.
sub run_sql
{
	my ($name, $change) = @_;
	local $_ = read_file("$examples/$name");
	$change->() if $change;
	return $pg->sql($_);
}

# -- triggers, and pg_cron, whose clock strikes while the others run -----------------------------------

run_sql('trigger.sql');
$pg->sql(q{INSERT INTO article (body) VALUES ('Cats sleep. They also eat. And more.'), ('Dogs bark. They also run. And more.')});
sub summaries { return $pg->sql(q{SELECT string_agg(coalesce(summary, '-'), ' | ' ORDER BY id) FROM article}) }
wait_for(sub { summaries() !~ /-/ }, 20, 'the articles are summarised');
is(summaries(), 'Cats sleep. They also eat. | Dogs bark. They also run.', 'a trigger submits for each row, and the answers come into the rows');
$pg->sql(q{UPDATE article SET body = 'Cats purr.' WHERE id = 1; UPDATE article SET body = body});
wait_for(sub { summaries() =~ /^Cats purr\./ }, 20, 'the article is summarised anew');
is(scalar($provider->calls), 3, 'a body that stays as it was is asked about once');
$has_cron and $pg->sql('CREATE EXTENSION pg_cron');
$has_cron and run_sql('cron.sql', sub { s/0 6 \* \* \*/* * * * */ or die "no schedule in cron.sql\n" });

# -- submit beside one's own rows, and wait -----------------------------------------------------------------

sub beside_rows
{
	my ($client, $program, $name) = @_;
	$pg->sql('TRUNCATE ticket');
	is(run_example($program, $name, 'Paper jam. It smells.', 'No toner. None at all.'),
		"one: succeeded Paper jam. It smells.\nall: succeeded Paper jam. It smells.\nall: succeeded No toner. None at all.\n",
		"$client: jobs are submitted beside rows and waited for, one and all");
	is($pg->sql('SELECT count(*) FROM ticket JOIN llmq.job ON job_id = summary_job'), 2, "$client: each row has its job");
	# Those of tickets: pg_cron submits each minute, too.
	my $count = q{SELECT count(*) FROM llmq.job WHERE queue = 'tickets'};
	my $before = $pg->sql($count);
	ok(!eval { run_example($program, $name, 'bad') }, "$client: a program that writes a row which is refused fails");
	is($pg->sql($count), $before, "$client: a row that is refused leaves no job");
	return;
}
beside_rows('psycopg', '/usr/bin/python3', 'submit.py');

# -- web services -------------------------------------------------------------------------------------------

# Starts a service that says which port it listens on, and returns it with the port.
sub start_service
{
	my ($name, @command) = @_;
	my $log = test_dir() . "/$name-log";
	my $service = LlmqTest::Process->start($log, @command);
	my $port = wait_for(sub {
		$service->is_running or die "$name does not start:\n" . read_file($log);
		read_file($log) =~ /(?:listening on |running on http:\S+:)(\d+)/ ? $1 : 0;
	}, 60, "$name listens");
	return ($service, $port);
}

# Asks a service and returns [status, body, headers].
sub ask
{
	my ($port, $method, $path, $key, $body) = @_;
	my $reply = HTTP::Tiny->new(timeout => 20)->request($method, "http://127.0.0.1:$port$path", {
		headers => { 'X-Tenant-Id' => 'acme', 'Content-Type' => 'application/json', $key ? ('Idempotency-Key' => $key) : () },
		defined $body ? (content => $body) : () });
	return [ $reply->{status}, eval { decode_json($reply->{content}) } // $reply->{content}, $reply->{headers} ];
}

sub serves
{
	my ($name, @command) = @_;
	my ($service, $port) = start_service($name, @command);
	my ($path, $key) = ('/v1/summaries', "\"$name-key-0123456789\"");
	my $first = ask($port, 'POST', $path, $key, '{"prompt": "It rains. It pours. And more."}');
	is("$first->[0] $first->[1]{status}", '202 queued', "$name: a request is accepted") or diag($first->[1]);
	my $again = ask($port, 'POST', $path, $key, '{"prompt": "It rains. It pours. And more."}');
	is_deeply([ @{$again}[ 0, 1 ], $again->[2]{'idempotent-replayed'} ], [ 202, $first->[1], 'true' ], "$name: its retry is a replay");
	my $job = $first->[1]{job_id};
	$pg->final_state($job);
	is_deeply(ask($port, 'GET', "$path/$job")->[1], { status => 'succeeded', summary => 'It rains. It pours.' }, "$name: the answer can be looked at");
	is(ask($port, 'GET', "$path/00000000-0000-0000-0000-000000000000")->[0], 404, "$name: what is not there is 404");
	for ([ 422, $key, '{"prompt": "x"}', 'another body' ], [ 400, undef, '{"prompt": "x"}', 'no key' ], [ 400, $key, 'not json', 'no JSON' ],
		[ 400, $key, '{"prompt": "\u0000"}', 'U+0000' ])
	{
		my ($status, $with, $body, $what) = @{$_};
		my $reply = ask($port, 'POST', $path, $with, $body);
		is("$reply->[0] $reply->[2]{'content-type'} $reply->[1]{status}", "$status application/problem+json $status", "$name: $what is $status");
	}
	return ($service, $port);
}

# PgBouncer, set up as the example says but for places and the size of its pool.
sub serves_pooled
{
	my $bouncer_dir = test_dir() . '/bouncer';
	mkdir $bouncer_dir or die "$bouncer_dir: $!\n";
	my $ini = read_file("$examples/pgbouncer.ini");
	my %place = ('host=/run/postgresql' => "host=$ENV{PGHOST}", '/run/pgbouncer' => $bouncer_dir, '/etc/pgbouncer' => $bouncer_dir,
		'default_pool_size = 20' => 'default_pool_size = 2');
	$ini =~ s/\Q$_\E/$place{$_}/ or die "no $_ in pgbouncer.ini\n" for keys %place;
	for (["$bouncer_dir/ini", $ini], ["$bouncer_dir/userlist.txt", qq{"web" ""\n}])
	{
		open(my $file, '>', $_->[0]) or die "$_->[0]: $!\n";
		print {$file} $_->[1];
		close $file;
	}
	my $bouncer = LlmqTest::Process->start("$bouncer_dir/log", '/usr/sbin/pgbouncer', "$bouncer_dir/ini");
	wait_for(sub { $bouncer->is_running or die read_file("$bouncer_dir/log"); -S "$bouncer_dir/.s.PGSQL.6432" }, 20, 'PgBouncer listens');
	{
		local @ENV{qw(PGHOST PGPORT)} = ($bouncer_dir, 6432);
		my ($service, $port) = serves('FastAPI behind PgBouncer', '/usr/bin/python3', '-m', 'uvicorn', '--app-dir', $examples, '--port', 0, 'fastapi_app:app');
		my @clients = map { my $n = $_; fork || do { ask($port, 'POST', '/v1/summaries', "crowd-0123456789-$n", '{"prompt": "Hello."}'); POSIX::_exit(0) } } 1 .. 20;
		waitpid $_, 0 for @clients;
		is($pg->sql(q{SELECT count(*) FROM llmq.job WHERE idempotency_key LIKE 'crowd%'}), 20, 'of 20 at once each has its job');
		cmp_ok($pg->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'web'}), '<=', 2, 'through two connections to the server');
		$service->end('TERM');
	}
	$bouncer->end('INT');
	return;
}
SKIP:
{
	$has_fastapi or skip 'FastAPI, psycopg_pool or PgBouncer is not here', 1;
	serves_pooled();
}

# -- PostgREST, which is to a function what these statements are ------------------------------------------------------

run_sql('postgrest.sql');
my $rest = $pg->session;
sub rpc
{
	my ($headers, $body) = @_;
	$rest->query('BEGIN; SET LOCAL ROLE api_user; SELECT set_config($$request.headers$$, ' . LlmqTest::Cluster::literal(encode_json($headers)) . ', true)');
	my $reply = $rest->query('SELECT api.summarise(' . LlmqTest::Cluster::literal($body) . ')');
	$reply->{status} = $rest->query('SELECT current_setting($$response.status$$)')->{out} if $reply->{sqlstate} eq '00000';
	$rest->query('END');
	return $reply;
}
my %key = ('idempotency-key' => 'rest 1');
my $reply = rpc(\%key, 'Snow falls. It melts. And more.');
is($reply->{status}, 202, 'PostgREST: a new job is 202');
is($pg->final_state($reply->{out} =~ /"job_id" : "([\w-]+)"/)->{text}, 'Snow falls. It melts.', 'PostgREST: and it runs');
is(rpc(\%key, 'Another.')->{sqlstate}, 'PT422', 'PostgREST: another body under the key is 422');
is(rpc({}, 'Snow.')->{sqlstate}, 'PT400', 'PostgREST: no key is 400');
$rest->disconnect;

# -- an agent that is killed -------------------------------------------------------------------------------------------

my $question = 'Where is order 7? Refund it if it is lost. [job:agent]';
sub asks_for
{
	my ($tool) = @_;
	my %call = (id => "call_$tool", type => 'function', function => { name => $tool, arguments => '{"order": 7}' });
	return { body => encode_json({ model => 'stand-in', choices => [ { index => 0, finish_reason => 'tool_calls',
		message => { role => 'assistant', content => undef, tool_calls => [ \%call ] } } ], usage => { prompt_tokens => 1, completion_tokens => 1 } }) };
}
$provider->script({ match => '[job:agent]', responses => [ { %{ asks_for('order_state') }, hold => 'turn 1' },
	{ %{ asks_for('refund') }, hold => 'turn 2' }, { text => 'It was refunded.', hold => 'turn 3' } ] });

# Starts the agent, once no earlier one is in a transaction, waits until it stands where the function says, and kills it.
my $starts = 0;
sub kill_agent
{
	my ($where, $stands) = @_;
	my $agent = start_agent();
	wait_for(sub { $agent->is_running or die "the agent has left: " . said(); $stands->() }, 30, "the agent stands $where");
	$agent->end('KILL');
	pass("the agent is killed $where");
	return;
}

sub start_agent
{
	wait_for(sub { $pg->sql(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'web'}) == 0 }, 30, 'no other agent is connected');
	return LlmqTest::Process->start(test_dir() . '/agent-' . ++$starts, '/usr/bin/python3', "$examples/agent.py", 'run 7', $question);
}

sub said { return read_file(test_dir() . "/agent-$starts") }

my @calls;
sub asked { my ($count) = @_; return sub { (@calls = $provider->calls('agent')) >= $count } }
sub stopped { return $pg->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted}) > 0 }
my $lock = $pg->session;
kill_agent('while the model thinks', asked(1));
$lock->query('BEGIN; LOCK TABLE customer_order');
$provider->release('turn 1');
kill_agent('in its first tool', \&stopped);
$lock->query('END');
kill_agent('after that', asked(2));
$lock->query('BEGIN; LOCK TABLE refund');
$provider->release('turn 2');
kill_agent('in its second tool', \&stopped);
$lock->query('END');
kill_agent('before the last answer', asked(3));
$provider->release('turn 3');
my $agent = start_agent();
wait_for(sub { !$agent->is_running }, 30, 'the agent comes to its end');
is(said(), "turn 1 asked before\nturn 1, tool 1 done before\nturn 2 asked before\nturn 2, tool 1 done before\nturn 3 asked before\n"
	  . "answer: It was refunded.\n", 'the last start finds all done');
is(scalar(@calls = $provider->calls('agent')), 3, 'the model was called once a turn');
is($pg->sql('SELECT count(*) FROM refund'), 1, 'and the money was given back once');
is(decode_json($calls[2]{body})->{messages}[2]{content}, '{"state": "lost in the post"}', 'the model was told what the tool found');
is_deeply($pg->row(q{SELECT jobs, succeeded FROM llmq.run WHERE run_id = 'run 7'}), { jobs => 3, succeeded => 3 }, 'llmq.run shows its turns');

# -- node ----------------------------------------------------------------------------------------------------------------------

SKIP:
{
	-d "$modules/pg" or skip 'npm, or its registry, is not in reach: there is no pg, express and openai', 1;
	# node looks for modules in the folders above a program.
	symlink $modules, test_dir() . '/node_modules' or die "node_modules: $!\n";
	LlmqTest::Cluster::run('cp', glob("$examples/*.mjs"), test_dir());
	$examples = test_dir();
	beside_rows('node-postgres', 'node', 'submit.mjs');
	my ($service) = serves('Express', 'node', "$examples/express_app.mjs", 0);
	$service->end('TERM');
	my $text = run_example('node', 'openai.mjs', 'sdk 1', 'Is it late? Yes or no. Say it. [job:sdk]');
	is($text, "Is it late? Yes or no.\n", 'the openai SDK gets its answer through llmq');
	is(run_example('node', 'openai.mjs', 'sdk 1', 'Is it late? Yes or no. Say it. [job:sdk]'), $text, 'and again under the same key');
	is(scalar(@calls = $provider->calls('sdk')), 1, 'from one call');
	my $body = decode_json($calls[0]{body});
	is_deeply([ @{$body}{qw(model temperature)}, $body->{messages}[0]{role} ], [ 'gpt-4o-mini', 0.2, 'system' ],
		'which has the model, the params and the messages of its request');
	$provider->script({ match => '[job:unwelcome]', responses => [ { status => 401 } ] });
	eval { run_example('node', 'openai.mjs', 'sdk 2', 'Hello. [job:unwelcome]') };
	like($@, qr/502.*code: 'auth'/s, 'a job that is dead is an error of the SDK');
}

# -- pg_cron, once more ------------------------------------------------------------------------------------------------------------

SKIP:
{
	$has_cron or skip 'pg_cron is not here', 1;
	my $digest = wait_for(sub { $pg->sql(q{SELECT job_id FROM llmq.job WHERE idempotency_key LIKE 'digest of %' LIMIT 1}) }, 90, 'the clock strikes');
	is($pg->final_state($digest)->{state}, 'succeeded', 'pg_cron: the digest is written');
	$pg->sql(q{SELECT cron.unschedule('daily digest')});
}

finish();
