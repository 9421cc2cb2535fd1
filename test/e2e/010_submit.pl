# Submitting: one job becomes one call, one result, one attempt and one outbox message, together; and
# the caller's transaction decides whether it ever existed.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP;
use LlmqTest;
use Test::More;

my $provider = start_provider(token => 'sk-open-sesame', args => ['--bodies']);
my $pg = start_cluster(preload => 1);
$pg->secret(main => 'sk-open-sesame');
$pg->create_database('app', extension => 1);
$pg->endpoint(main => $provider, credential => 'main');
$pg->wait_for_worker;

sub count_of { my ($table, $job) = @_; return $pg->sql("SELECT count(*) FROM llmq.$table WHERE job_id = '$job'") }
sub calls { return scalar(my @calls = $provider->calls(@_)) }

# -- one job ------------------------------------------------------------------

my $job = $pg->submit(
	prompt          => 'The rain has stopped. The sun is out. We go home. [job:one]',
	system          => 'You are terse.',
	params          => { temperature => 0.25 },
	metadata        => { ticket => 42 },
	outbox          => [ { topic => 'mail', payload => { subject => 'done' } } ],
	idempotency_key => 'one');
my $status = $pg->final_state($job);
is($status->{state}, 'succeeded', 'a submitted job succeeds');
is($status->{text}, 'The rain has stopped. The sun is out.', 'its text is what the provider answered');
is($status->{metadata}{ticket}, 42, 'its metadata comes back with it');
is($pg->row("SELECT topic, payload ->> 'subject' AS subject FROM llmq.outbox WHERE job_id = '$job'")->{subject},
	'done', 'its outbox message is there');
is(join(' ', map { count_of($_, $job) } qw(result attempt outbox)), '1 1 1', 'there is one result, one attempt, one message');

my ($call) = $provider->calls('one');
is(calls('one'), 1, 'the provider saw one call');
is($call->{how}, 'finished', 'and finished its answer');
is($call->{authorization}, 'match', 'it was given the secret');
my $body = decode_json($call->{body});
is(join(' ', map { $_->{role} } @{ $body->{messages} }), 'system user', 'the system text goes before the prompt');
is($body->{model}, 'stand-in', "the model is the endpoint's");
is($body->{temperature}, 0.25, 'params reach the provider');
unlike($pg->log_text, qr/open-sesame/, 'the secret is not in the server log');

$job = $pg->submit(model => 'other', idempotency_key => 'messages', messages => [
	{ role => 'user', content => 'First question?' }, { role => 'assistant', content => 'An answer.' },
	{ role => 'user', content => 'Second question? [job:messages]' } ]);
is($pg->final_state($job)->{text}, 'Second question? [job:messages]', 'a conversation is answered at its end');
is(($provider->calls('messages'))[0]{model}, 'other', 'a job can name its model');

# -- together -----------------------------------------------------------------

# While settling has to wait for one of its tables, nothing of it can be seen in the others.
for my $table (qw(result attempt))
{
	my $locker = $pg->session;
	$locker->query("BEGIN; LOCK TABLE llmq.$table IN SHARE MODE");
	$job = $pg->submit(
		prompt          => "Wait for it. [job:lock-$table]",
		outbox          => [ { topic => 'mail', payload => {} } ],
		idempotency_key => "lock-$table");
	wait_for(sub { $pg->sql("SELECT count(*) FROM pg_locks WHERE relation = 'llmq.$table'::regclass AND NOT granted") },
		20, "settling waits for llmq.$table");
	is(join(' ', map { count_of($_, $job) } qw(result attempt outbox)), '0 0 0', "while llmq.$table is locked nothing of the job is there");
	$locker->query('COMMIT');
	is($pg->final_state($job)->{state}, 'succeeded', 'when the lock is gone the job succeeds');
	is(join(' ', map { count_of($_, $job) } qw(result attempt outbox)), '1 1 1', 'then all of it is there');
	is(calls("lock-$table"), 1, 'and the answer was not paid for twice');
}

# -- the same key -------------------------------------------------------------

$provider->script({ match => '[job:key]', responses => [ { hold => 'key' } ] });
my %same = (prompt => 'Only once. [job:key]', idempotency_key => 'key');
my $call_of = sub { return 'SELECT * FROM ' . LlmqTest::Cluster::submit_call(@_) };
my $first = $pg->row($call_of->(%same));
my $again = $pg->row($call_of->(%same));
is("$first->{replayed} $again->{replayed}", '0 1', 'a second submission under a key is a replay');
is($again->{job_id}, $first->{job_id}, 'of the same job');
is($pg->query($call_of->(%same, prompt => 'Another body.'))->{sqlstate}, 'PT422', 'another body under that key is refused');
$provider->release('key');
$pg->final_state($first->{job_id});
is($pg->row($call_of->(%same))->{state}, 'succeeded', 'after the end the replay tells the final state');
is(calls('key'), 1, 'the provider saw one call for all of them');

my $holder = $pg->session;
$holder->query('BEGIN; ' . $call_of->(%same, idempotency_key => 'race', prompt => 'Race. [job:race]'));
is($pg->query($call_of->(%same, idempotency_key => 'race', prompt => 'Race. [job:race]'))->{sqlstate},
	'PT409', 'a key that another open transaction holds is a conflict');
$holder->query('COMMIT');
$pg->final_state($pg->row($call_of->(%same, idempotency_key => 'race', prompt => 'Race. [job:race]'))->{job_id});
is(calls('race'), 1, 'and one call in the end');

# -- the caller's transaction -------------------------------------------------

my $late = $pg->session;
$late->query('BEGIN');
my $late_job = $late->query('SELECT job_id FROM llmq.submit(prompt => $$Late. [job:late]$$, idempotency_key => $$late$$)')->{out};
$late->send('SELECT pg_sleep(3)');
my $gone = $pg->session;
$gone->query('BEGIN');
my $gone_job = $gone->query('SELECT job_id FROM llmq.submit(prompt => $$Gone. [job:gone]$$, idempotency_key => $$gone$$)')->{out};
like($gone_job, qr/^[0-9a-f-]{36}\z/, 'submit returns a job_id before the commit');
for my $number (1 .. 5)
{
	$pg->final_state($pg->submit(prompt => "Between. [job:between-$number]", idempotency_key => "between-$number"));
}
$gone->query('ROLLBACK');
$late->result;
is(calls('late'), 0, 'a job of a transaction that is open for three seconds is not called');
my $commit = now();
$late->query('COMMIT');
is($pg->final_state($late_job)->{state}, 'succeeded', 'it runs after the commit, though later jobs have long been done');
cmp_ok(($provider->calls('late'))[0]{start}, '>', $commit, 'and was called after the commit');
is(calls('gone'), 0, 'a job that was rolled back is never called');
is($pg->sql("SELECT count(*) FROM llmq.job_status WHERE job_id = '$gone_job'"), 0, 'and never existed');

# -- nobody there -------------------------------------------------------------

$pg->stop_workers;
my $alone = $pg->session;
my $result = $alone->query('SELECT job_id FROM llmq.submit(prompt => $$Anybody? [job:alone]$$, idempotency_key => $$alone$$)');
like($result->{err}, qr/WARNING/, 'submit warns when no worker serves the database');
unlike($alone->query('SELECT job_id FROM llmq.submit(prompt => $$And now?$$, idempotency_key => $$alone-2$$)')->{err}, qr/WARNING/,
	'and does not say it again with each submit of the session');
is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$result->{out}'"), 'ready', 'and keeps the job');
$pg->start_workers;
is($pg->final_state($result->{out})->{state}, 'succeeded', 'which runs when a worker is started');
$result = $pg->query('SELECT job_id FROM llmq.submit(prompt => $$There? [job:there]$$, idempotency_key => $$there$$)');
unlike($result->{err}, qr/WARNING/, 'with a worker there is no warning');
$pg->final_state($result->{out});

finish();
