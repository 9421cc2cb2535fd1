# Budgets over a turn of their period, by a clock that is set to just before it; and what calls cost,
# with tokens that were cached and tokens that were thought.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use JSON::PP;
use LlmqTest;
use LlmqTest::Clock;
use Test::More;
use Time::Local qw(timegm);

# A day, a month and a year end at once.
my $TURN = timegm(0, 0, 0, 1, 0, 2032);
my $HOUR = 3600;

my $clock = LlmqTest::Clock->new;
sub set_time { my ($time) = @_; $clock->set($time - time); return }

my $provider = start_provider();
my $pg = new_cluster(preload => 1, conf => { 'llmq.poll_interval' => '60s', TimeZone => 'UTC' });
set_time($TURN - $HOUR);
$pg->start($clock->wrap);
$pg->create_database('app', extension => 1);
$pg->wait_for_worker;

# An endpoint with a queue, both of this name, that answers always the same.
sub place
{
	my ($name, $api, $body, %columns) = @_;
	$pg->endpoint($name, $provider, api => $api, model => "$name-model", input_price => 10, cached_price => 1, output_price => 100, %columns);
	$pg->insert('queue', name => $name, endpoints => "{$name}");
	$provider->script({ match => "[job:$name", responses => [ answer($body) ] });
	return;
}

sub answer { my ($body) = @_; return { headers => [ [ 'Content-Type', 'application/json' ] ], body => encode_json($body) } }

sub submit
{
	my ($name, $tenant, $queue) = @_;
	return $pg->submit(prompt => "Go. [job:$queue-$name]", idempotency_key => $name, tenant => $tenant, queue => $queue);
}

sub spent { my ($tenant) = @_; return $pg->sql("SELECT format('%s %s', round(cost, 2), tokens) FROM llmq.budget_status WHERE tenant = '$tenant'") }

# -- what calls cost -----------------------------------------------------------------------------------

# Each in the words of its provider: 50,000 tokens in, of which 20,000 were cached, and 4,000 out, of which 3,000 were thought.
my %usage = (
	openai_chat => { choices => [ { index => 0, finish_reason => 'stop', message => { role => 'assistant', content => 'Done.' } } ],
		usage => { prompt_tokens => 50_000, completion_tokens => 4000, prompt_tokens_details => { cached_tokens => 20_000 },
			completion_tokens_details => { reasoning_tokens => 3000 } } },
	openai_responses => { status => 'completed', output => [ { type => 'reasoning', summary => [] },
		{ type => 'message', role => 'assistant', status => 'completed', content => [ { type => 'output_text', text => 'Done.', annotations => [] } ] } ],
		usage => { input_tokens => 50_000, output_tokens => 4000, input_tokens_details => { cached_tokens => 20_000 },
			output_tokens_details => { reasoning_tokens => 3000 } } },
	anthropic_messages => { type => 'message', role => 'assistant', stop_reason => 'end_turn', content => [ { type => 'text', text => 'Done.' } ],
		usage => { input_tokens => 25_000, cache_creation_input_tokens => 5000, cache_read_input_tokens => 20_000, output_tokens => 4000 } },
	gemini => { candidates => [ { index => 0, finishReason => 'STOP', content => { role => 'model', parts => [ { text => 'Done.' } ] } } ],
		usageMetadata => { promptTokenCount => 50_000, cachedContentTokenCount => 20_000, candidatesTokenCount => 1000, thoughtsTokenCount => 3000 } });
$pg->insert('role_tenant', role => 'postgres', tenant => $_) for qw(counted day month year hard over);
$pg->insert('budget', tenant => 'counted', period => '1 day', max_cost => 10);
for my $api (sort keys %usage)
{
	place($api, $api, $usage{$api});
	my $id = submit($api, 'counted', $api);
	$pg->final_state($id);
	is($pg->sql("SELECT format('%s %s %s %s', input_tokens, output_tokens, cached_tokens, cost) FROM llmq.result WHERE job_id = '$id'"), '50000 4000 20000 0.72',
		"$api: what was cached costs its own price, and what was thought costs what answers do");
}
is(spent('counted'), '2.88 216000', 'llmq.budget_status has the sum');
is($pg->sql(q{SELECT string_agg(format('%s %s %s %s %s %s %s %s %s', endpoint, model, day, calls, input_tokens, output_tokens, cached_tokens, cost, maybe_billed), ', ' ORDER BY endpoint)
	FROM llmq.usage WHERE tenant = 'counted'}),
	join(', ', map { "$_ $_-model 2031-12-31 1 50000 4000 20000 0.72 0" } sort keys %usage), 'llmq.usage has tenant, endpoint, model and day');

# A call that broke off after it was sent may have been billed: it is counted by itself, and costs nothing that is known.
$provider->script({ match => '[job:gemini-broken]', responses => [ { status => undef, end => 'reset' }, answer($usage{gemini}) ] });
$pg->final_state(submit('broken', 'counted', 'gemini'));
is($pg->sql(q{SELECT format('%s %s %s %s', model, calls, cost, maybe_billed) FROM llmq.usage WHERE tenant = 'counted' AND endpoint = 'gemini'}), 'gemini-model 3 1.44 1',
	'a call of which nobody knows whether it was billed is counted in a column of its own');
is(spent('counted'), '3.60 270000', 'and the budget counts what is known');

# -- the turn of a period --------------------------------------------------------------------------------

place('turn', 'openai_chat', $usage{openai_chat}, max_in_flight => 1);
$pg->insert('budget', tenant => $_, period => "1 $_", max_tokens => 100_000) for qw(day month year);
$pg->insert('budget', tenant => 'hard', period => '1 day', max_cost => 1, hard => 'true');
$pg->insert('budget', tenant => 'over', period => '1 day', max_tokens => 100_000);
for my $tenant (qw(day month year hard))
{
	$pg->final_state(submit("$tenant-$_", $tenant, 'turn')) for 1 .. 2;
	is(spent($tenant), '1.44 108000', "$tenant: two jobs spend the budget");
}
is($pg->query(q{SELECT llmq.submit('Go.', 'hard-3', tenant => 'hard', queue => 'turn')})->{sqlstate}, 'PT402', 'a hard one refuses the third');
my %waiting = map { my $tenant = $_; ($tenant => [ map { submit("$tenant-$_", $tenant, 'turn') } 3 .. 5 ]) } qw(day month year);
my $waits = q{SELECT string_agg(DISTINCT format('%s %s %s %s %s', state, wait_reason, date_trunc('second', wait_until AT TIME ZONE 'UTC'), deliveries, attempts), ', ')
	FROM llmq.job_status WHERE tenant IN ('day', 'month', 'year') AND state <> 'succeeded'};
ok(wait_for(sub { $pg->sql($waits) eq 'scheduled budget 2032-01-01 00:00:00 0 0' }, 20, 'all wait'), 'soft ones let theirs wait for the turn, which they name, without a delivery');
is($pg->sql(q{SELECT string_agg(idempotency_key, ' ' ORDER BY wait_until) FROM llmq.job_status JOIN llmq.job USING (job_id) WHERE job_status.tenant = 'day' AND state = 'scheduled'}),
	'day-3 day-4 day-5', 'in their order');

# A call that the turn comes upon.
$provider->script({ match => '[job:turn-over', responses => [ { hold => 'over', %{ answer($usage{openai_chat}) } } ] });
$pg->insert('endpoint', name => 'slow', api => 'openai_chat', url => $provider->url, model => 'm', breaker_failures => 1_000_000);
$pg->insert('queue', name => 'slow', endpoints => '{slow}', call_timeout => '100 s', deadline => '200 s');
my $over = $pg->submit(prompt => 'Go. [job:turn-over]', idempotency_key => 'over', tenant => 'over', queue => 'slow');
$provider->wait_for_calls('turn-over', 1);

set_time($TURN - 60);
$pg->sql('SELECT llmq_internal.wake_worker()');
$pg->final_state(submit('late', 'counted', 'gemini'));
is($pg->sql($waits), 'scheduled budget 2032-01-01 00:00:00 0 0', 'a minute before it they wait');
is($pg->query(q{SELECT llmq.submit('Go.', 'hard-3', tenant => 'hard', queue => 'turn')})->{sqlstate}, 'PT402', 'and the hard one refuses');

# From here on time passes by itself; a change makes the worker look how long it has to wait.
set_time($TURN - 3);
$pg->sql('SELECT llmq_internal.wake_worker()');
for my $tenant (qw(day month year))
{
	$provider->wait_for_calls("turn-$tenant-3", 1, 30);
	$pg->final_state($waiting{$tenant}[$_]) for 0, 1;
	is(spent($tenant), '1.44 108000', "$tenant: when the period has turned they run, and count in the new one");
	is($pg->sql("SELECT wait_until > '2032-01-01' FROM llmq.job_status WHERE job_id = '$waiting{$tenant}[2]'"), 't', "$tenant: until that is spent, too");
}
is($pg->sql(q{SELECT count(*) FROM llmq.attempt WHERE started_at < '2032-01-01' AND job_id IN (SELECT job_id FROM llmq.job WHERE idempotency_key ~ '^(day|month|year)-[345]$')}), 0,
	'none of them ran before it');
is($pg->sql(q{SELECT string_agg(DISTINCT format('%s %s', tenant, wait_until::date), ', ' ORDER BY format('%s %s', tenant, wait_until::date)) FROM llmq.job_status WHERE wait_reason = 'budget'}),
	'day 2032-01-02, month 2032-02-01, year 2033-01-01', 'a day, a month and a year are as long as they are');
is(spent('hard'), '0.00 0', 'nothing is spent of the hard one');
is($pg->final_state(submit('hard-3', 'hard', 'turn'))->{state}, 'succeeded', 'which takes jobs again');
$provider->release('over');
$pg->final_state($over);
is($pg->sql(q{SELECT tokens FROM llmq.budget_status WHERE tenant = 'over'}), 54_000, 'a call that the turn came upon counts in the period in which it ended');
is($pg->sql(q{SELECT string_agg(format('%s %s', day, calls), ', ' ORDER BY day) FROM llmq.usage WHERE tenant = 'day'}), '2031-12-31 2, 2032-01-01 2', 'llmq.usage tells the days apart');

finish();
