# A dump of a database with work of every kind in it is loaded: at once, in parallel, in one transaction,
# and table by table in two orders while the workers look on; into other databases and into its own. No
# row is lost or touched, nobody is called before llmq.resume_after_restore(), and then all is done.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '100ms' });
my @where = ('-h', $pg->socket_dir, '-p', 5432, '-U', 'postgres');
my ($plain, $custom) = map { test_dir() . "/dump.$_" } qw(sql custom);

sub run_program { my ($name, @args) = @_; return LlmqTest::Cluster::run(LlmqTest::Cluster::program($name), @where, @args) }

# -- what is dumped --------------------------------------------------------------------------------

$pg->create_database('app', extension => 1, provider => $provider);
wait_for(sub { $pg->sql('SELECT string_agg(state, $$ $$) FROM llmq.worker') eq 'running' }, 20, 'its worker is ready');
my $old_worker = $pg->sql('SELECT id FROM llmq.worker_session');
$pg->stop_workers;
$pg->sql('SET client_min_messages = error');	# which says that nobody works

my $outbox = '[{"topic": "mail", "payload": {}}]';
my $submit = sub {
	my ($what, $count, $more) = @_;
	$pg->sql("SELECT count(llmq.submit('Go.', '$what-' || n, outbox => '$outbox'$more)) FROM generate_series(1, $count) AS n");
	return;
};
# The ids of jobs are asked for in SQL.
my $ids = sub { my ($what) = @_; return "SELECT job_id FROM llmq.job WHERE idempotency_key LIKE '$what-%'" };

# Running jobs, under leases of the worker that just left, and answers that wait for their function.
$pg->sql('CREATE TABLE public.called (job jsonb)');
$pg->sql('CREATE FUNCTION public.note(job jsonb) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.called VALUES (job) $$');
$pg->sql("INSERT INTO llmq.worker_session (id, name, kind, pid, backend_start, heartbeat, in_flight)
	OVERRIDING SYSTEM VALUE VALUES ($old_worker, 'gone', 'server', 1, now(), now(), 1)");
$submit->('answered', 5, ", on_complete => 'public.note'");
$submit->('running', 20, '');
$pg->sql("SELECT count(*) FROM llmq.worker_claim($old_worker, ARRAY(SELECT seq FROM llmq.ready))");
$pg->sql("SELECT count(*) FROM llmq.worker_settle($old_worker, (
	SELECT jsonb_agg(jsonb_build_object('job_id', job_id, 'delivery', 1, 'outcome', 'succeeded', 'text', 'kept',
		'attempts', '[{\"attempt\": 1, \"endpoint\": \"main\", \"started_at\": 0, \"outcome\": \"success\", \"billing\": \"billed\"}]'::jsonb))
	FROM (@{[ $ids->('answered') ]}) AS j))");
# Jobs that are ready, due, or come after those that run or are ready.
$submit->('ready', 30, '');
$submit->('due', 20, ", run_at => clock_timestamp() + interval '1 hour'");
$pg->sql("UPDATE llmq.deferred SET due_at = clock_timestamp() - interval '1 s'");
$submit->('after_' . $_, 5, ", after => ARRAY(@{[ $ids->($_) ]})") for qw(running ready);
$pg->sql("UPDATE llmq.blocked SET fresh = false WHERE job_id IN (@{[ $ids->('after_running') ]})");	# were looked at
# Messages that are pending, due, and under a consumer's lease that is over.
$pg->sql(q{SELECT llmq.enqueue_outbox('pulled', '{}', 'm' || n) FROM generate_series(1, 15) AS n});
$pg->sql(q{SELECT count(llmq.outbox_nack(id, token, 'not now')) FROM llmq.outbox_claim('pulled', 5)});
$pg->sql(q{SELECT count(*) FROM llmq.outbox_claim('pulled', 5, '1 hour')});
$pg->sql(q{UPDATE llmq.message_deferred SET next_attempt_at = clock_timestamp() - interval '1 s'});
$pg->sql(q{UPDATE llmq.message_lease SET expires_at = clock_timestamp() - interval '1 s'});

# All that stands in the tables of jobs and messages.
my $contents = 'SELECT ' . join(' || ', map { "(SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM llmq.$_ AS t)" }
	qw(job ready deferred blocked dependency lease answer result attempt dead_job cancelled_job message message_pending
	message_deferred message_lease message_done));
my $places = q{SELECT string_agg(place || ' ' || count, ', ' ORDER BY place) FROM (SELECT place, count(*) FROM llmq.job_place GROUP BY place
	UNION ALL SELECT place, count(*) FROM llmq.message_place GROUP BY place) AS p (place, count)};
my $before = $pg->sql($contents);
is($pg->sql($places), 'answer 5, blocked 10, deferred 20, lease 20, message_deferred 5, message_lease 5, message_pending 5, ready 30',
	'work of every kind is in the database');
my $jobs = $pg->sql('SELECT count(*) FROM llmq.job');
run_program('pg_dump', '-f', $plain, 'app');
run_program('pg_dump', '-Fc', '-f', $custom, 'app');

# -- ways to load it ---------------------------------------------------------------------------------

# Waits until the worker of the database has looked around twice from now on.
sub let_look
{
	my ($db) = @_;
	my $looked = q{SELECT max(query_start) FROM pg_stat_activity WHERE state = 'idle' AND pid = ANY ('{%s}')};
	my $last = '';
	for my $look (0 .. 2)
	{
		$last = wait_for(sub {
			my $at = $pg->sql(sprintf($looked, join ',', $pg->workers($db)), 'postgres');
			$at ne '' && $at ne $last ? $at : 0;
		}, 20, "the worker of $db looks around");
	}
	return;
}

# Loads the plain dump table by table, in the order that $order puts them into, and lets the worker look around
# after each.
sub load_slowly
{
	my ($db, $order) = @_;
	my $text = do { local (@ARGV, $/) = $plain; <> };
	my ($head, $rest) = $text =~ /\A(.*?^CREATE EXTENSION [^;]*llmq[^;]*;\n)(.*)\z/ms or die "this dump is strange\n";
	my @pieces;
	$rest =~ s/^(COPY llmq\.(\w+) .*?^\\\.\n|SELECT pg_catalog\.setval\('llmq\.(\w+)'.*?;\n)/push @pieces, [ $2 \/\/ $3, $1 ]; ''/gmse;
	my ($settings) = $head =~ /\A(.*?)^CREATE/ms;
	my $refused = 0;
	my $load = sub {
		my ($sql) = @_;
		open(my $out, '>', "$plain.part") or die "$plain.part: $!\n";
		print {$out} $sql;
		close $out;
		LlmqTest::Cluster::run($pg->psql_command($db), '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', "$plain.part");
	};
	$load->($head);
	$pg->start_programs if $pg->has_programs;
	let_look($db);
	for my $piece ($order->(@pieces))
	{
		my ($name, $sql) = @{$piece};
		$load->($settings . $sql);
		next unless $sql =~ /\ASELECT|;\n[^\\]/;	# an empty table is no news
		let_look($db);
		next unless $name =~ /^(?:home|job|ready|answer)$/;
		my $submit = $pg->query(q{SELECT llmq.submit('Go.', 'meanwhile')}, $db);
		$refused += $submit->{sqlstate} eq 'PT503';
	}
	is($refused, 4, "$db: what is submitted meanwhile is refused");
	$load->($settings . $rest);
	return;
}

sub by_name { return @_ }
# Home first, then the numbers of the sequences, places before jobs.
sub backwards { my @pieces = reverse @_; return ((grep { $_->[0] eq 'home' } @pieces), grep { $_->[0] ne 'home' } @pieces) }

# Tests that what was loaded is what was dumped, and that it is done when somebody says so.
sub stands_and_works
{
	my ($db) = @_;
	my $calls = () = $provider->calls;
	$pg->use_database($db);
	$pg->start_programs if $pg->has_programs && !$pg->workers($db);
	let_look($db);
	is($pg->sql($places), 'answer 5, blocked 10, deferred 20, lease 20, message_deferred 5, message_lease 5, message_pending 5, ready 30',
		"$db: all is there");
	is($pg->sql($contents), $before, "$db: as it was dumped");
	is($pg->sql('SELECT state FROM llmq.worker_session ORDER BY id DESC LIMIT 1'), 'quarantined', "$db: its worker is in quarantine");
	is($pg->query(q{SELECT llmq.submit('Go.', 'too early')})->{sqlstate}, 'PT503', "$db: it takes no jobs yet");
	is($pg->sql('SELECT count(*) FROM llmq.check()'), 0, "$db: llmq.check() finds nothing wrong");
	is(scalar(my @now = $provider->calls), $calls, "$db: nobody was called");

	$pg->sql('SELECT llmq.resume_after_restore()');
	ok(wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.job_status WHERE state = 'succeeded'}) == $jobs }, 30, "$db: all is done"),
		"$db: told to, it does them all");
	is(scalar(@now = $provider->calls), $calls + $jobs - 5, "$db: with a call for each that had no answer");
	is($pg->sql('SELECT count(*) FROM public.called'), 5, "$db: the functions of the others were called");
	is($pg->sql(q{SELECT count(*) FROM llmq.outbox WHERE topic = 'mail'}), $jobs, "$db: each has its message");
	ok(wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.message_pending WHERE topic = 'pulled'}) == 15 }, 20, 'messages are due'),
		"$db: messages that were due, or with a consumer that is gone, can be pulled again");
	is($pg->final_state($pg->submit(prompt => 'Go.', idempotency_key => 'new'))->{state}, 'succeeded', "$db: it takes new jobs");
	is($pg->sql('SELECT count(*) FROM llmq.check()'), 0, "$db: and llmq.check() finds nothing wrong then");
	return;
}

my @ways = (
	[ at_once => sub { run_program('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $_[0], '-f', $plain) } ],
	[ restored => sub { run_program('pg_restore', '--exit-on-error', '-d', $_[0], $custom) } ],
	[ in_parallel => sub { run_program('pg_restore', '--exit-on-error', '-j', 2, '-d', $_[0], $custom) } ],
	[ in_one_transaction => sub { run_program('pg_restore', '--single-transaction', '-d', $_[0], $custom) } ],
	[ slowly => sub { load_slowly($_[0], \&by_name) } ],
	[ slowly_backwards => sub { load_slowly($_[0], \&backwards) } ]);
for my $way (@ways)
{
	my ($db, $load) = @{$way};
	$pg->create_database($db);
	$load->($db);
	stands_and_works($db);
	$pg->drop_database($db);
}

# -- copies of the files -------------------------------------------------------------------------------

$pg->disconnect_all;
$pg->sql('CREATE DATABASE copy TEMPLATE app', 'postgres');
$pg->use_database('copy');
$pg->sql('SELECT llmq.start_worker()');
is($pg->query(q{SELECT llmq.submit('Go.', 'there')})->{sqlstate}, '00000', 'a copy by TEMPLATE, which is complete, takes jobs that wait like the rest');
$pg->drop_database('copy');

# -- the database that it is of ------------------------------------------------------------------------

$pg->use_database('app');
$pg->sql('DROP EXTENSION llmq; DROP SCHEMA llmq; DROP FUNCTION public.note; DROP TABLE public.called');
load_slowly('app', \&by_name);
isnt($pg->sql('SELECT max(id) FROM llmq.worker_session'), $old_worker, 'in place: no worker has the number of one that a dump knows');
stands_and_works('app');

finish();
