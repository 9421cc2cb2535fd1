# The limits of the machine: few files, a clock that is set by an hour, and settings that change how
# dates and numbers look.  Work goes on, or waits and says what would help.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use LlmqTest::Clock;
use Test::More;

use constant HOUR => 3600;

my $provider = start_provider();
my $pg;

sub final { my ($job) = @_; return $pg->final_state($job, 60)->{state} }

# Submits jobs that are called and not answered before $name is released; returns when all calls are there.
sub hold_calls
{
	my ($name, $count, %more) = @_;
	$provider->script({ match => "[job:$name-", responses => [ { hold => $name } ] });
	my @jobs = map { $pg->submit(prompt => "Go. [job:$name-$_]", idempotency_key => "$name-$_", %more) } 1 .. $count;
	wait_for(sub { $count == grep { $_->{job} =~ /^$name-/ } $provider->calls }, 30, "$count calls of $name");
	return @jobs;
}

# The jobs succeed, each with the one call that was made.
sub done_with_one_call
{
	my ($name, $what, @jobs) = @_;
	is_deeply([ map { final($_) } @jobs ], [ ('succeeded') x @jobs ], "$what: the calls under way end well");
	is(scalar(grep { $_->{job} =~ /^$name-/ } $provider->calls), scalar(@jobs), "$what: and are not made again");
	return;
}

# -- 256 files ------------------------------------------------------------------------------------------

$pg = new_cluster(preload => 1);
$pg->start('prlimit', '--nofile=256:256', '--');
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;
my @jobs = hold_calls('files', 100);
$provider->release('files');
done_with_one_call('files', '256 files', @jobs);
like($pg->log_text, $pg->has_programs ? qr/at most 192 calls at once instead of 1000: the limit of open files is 256/
	: qr/llmq makes at most 128 calls at once instead of 1000.*HINT:  Raise the limit/s, '256 files: the log says what that means');
$pg->check;
$pg->stop;

# -- the clock is set -------------------------------------------------------------------------------------

my $clock = LlmqTest::Clock->new;
$pg = new_cluster(preload => 1, conf => { 'llmq.workers' => 2, 'llmq.poll_interval' => '1 s' });
$pg->start($clock->wrap);
$pg->create_database('app', extension => 1, provider => $provider);
wait_for(sub { $pg->workers == 2 }, 20, 'two workers');
for my $step ([ forward => HOUR ], [ back => -HOUR ])
{
	my ($where, $seconds) = @{$step};
	$clock->set(0);
	my $what = "clock set $where by an hour";
	@jobs = hold_calls($where, 10);
	$clock->set($seconds);
	cmp_ok(abs($pg->sql('SELECT extract(epoch FROM clock_timestamp())') - time - $seconds), '<', 60, "$what: the server believes it");
	is(final($pg->submit(prompt => 'Go.', idempotency_key => "new $where")), 'succeeded', "$what: new jobs are done");
	# Long enough for both workers to look at each other's heartbeats.
	my $seen = $pg->sql('SELECT clock_timestamp()');
	wait_for(sub { $pg->sql("SELECT bool_and(heartbeat > '$seen') FROM llmq.worker_session WHERE in_flight > 0") eq 't' }, 30, 'heartbeats of the new time');
	$provider->release($where);
	done_with_one_call($where, $what, @jobs);
	is($pg->sql('SELECT count(*) FROM llmq.attempt WHERE attempt = 0'), 0, "$what: no worker was taken for lost");
	$pg->check;
}

# -- how dates and numbers look ----------------------------------------------------------------------------

$clock->set(0);
$pg->sql("ALTER DATABASE app SET $_") for "DateStyle = 'SQL, DMY'", "TimeZone = 'Pacific/Chatham'", "IntervalStyle = 'sql_standard'", 'extra_float_digits = -15',
	'bytea_output = escape', 'standard_conforming_strings = off', 'escape_string_warning = off', 'array_nulls = off', 'transform_null_equals = on', 'quote_all_identifiers = on', 'row_security = off', 'session_replication_role = origin',
	"xmlbinary = hex", 'check_function_bodies = off', 'plpgsql.variable_conflict = use_column', 'synchronize_seqscans = off', "client_encoding = 'LATIN1'", "lc_numeric = 'C.UTF-8'",
	'default_tablespace = pg_default', 'default_toast_compression = pglz', 'work_mem = 64';
$pg->disconnect_all;
my @old = $pg->workers;
$pg->sql("SELECT pg_terminate_backend($_)") for @old;
wait_for(sub { @old == grep { is_gone($_) } @old }, 20, 'the workers have ended');
my @soon = (policy => { call_timeout => '1.5 s', deadline => '20 s', redelivery_base => '10 ms', redelivery_cap => '20 ms', backoff_base => '10 ms' });
$provider->script({ match => '[job:odd]', responses => [ { status => 500 }, { status => 429, headers => [ [ 'Retry-After', '0.2' ] ] }, {} ] });
my $job = $pg->submit(prompt => 'Go. [job:odd]', idempotency_key => 'odd', metadata => { number => 0.1, when => '01/02/2030' }, outbox => [ { topic => 'mail', payload => [ 1.5 ] } ], @soon);
is(final($job), 'succeeded', 'odd settings: a job succeeds, after an error and a wish to wait');
is($pg->sql("SELECT bool_and(started_at BETWEEN now() - interval '00:05:00' AND now() AND duration < interval '00:01:00') FROM llmq.attempt WHERE job_id = '$job'"), 't',
	'odd settings: its attempts have sane times');
my $later = $pg->sql(q{SELECT (llmq.submit('Later.', 'later', run_at => clock_timestamp() + interval '00:00:02')).job_id});
is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$later'"), 'scheduled', 'odd settings: a time to run at is kept');
is(final($later), 'succeeded', 'odd settings: and comes');
is($pg->sql("SELECT started_at >= run_at FROM llmq.job_status WHERE job_id = '$later'"), 't', 'odd settings: not too early');

$pg->sql('CREATE FUNCTION public.noted(job jsonb) RETURNS void LANGUAGE sql AS $$ SELECT $$');
is($pg->sql(q{SELECT state FROM llmq.submit_many('[{"prompt": "Noted.", "idempotency_key": "noted", "on_complete": "public.noted ( jsonb )"}]')}), 'ready',
	'odd settings: a function is found by its name');
is($pg->sql(q{SELECT status FROM llmq.http_submit(current_user, 'POST', '/odd', E'"a \\\\"quoted\\\\" key \\\\\\\\ of them"', '{"prompt": "Quoted."}')}), 202,
	'odd settings: a quoted Idempotency-Key is read');
is($pg->sql(q{SELECT count(*) FROM llmq.job WHERE idempotency_key = E'a "quoted" key \\\\ of them'}), 1, 'odd settings: and its escapes are taken off');
is($pg->sql(q{SELECT status FROM llmq.http_submit(current_user, 'POST', '/odd', E'"a stray \\\\backslash in it"', '{"prompt": "Quoted."}')}), 400,
	'odd settings: one that is not well-formed is refused');

finish();
