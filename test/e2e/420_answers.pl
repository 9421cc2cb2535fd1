# What an attempt sends and what comes back: one request each, no redirect, the idempotency header,
# images and params as given; JSON, tool calls, truncated answers, text and numbers of every kind.

use strict;
use warnings;
use utf8;

use FindBin;
use lib "$FindBin::Bin/lib";
use Digest::SHA qw(sha1);
use Encode qw(encode_utf8);
use JSON::PP ();
use LlmqTest;
use MIME::Base64 qw(encode_base64);
use Test::More;

binmode($_, ':encoding(UTF-8)') for Test::More->builder->output, Test::More->builder->failure_output;

my $json = JSON::PP->new->canonical->allow_nonref;
my $provider = start_provider(args => ['--bodies']);
my $elsewhere = start_provider();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1);
$pg->wait_for_worker;

my %soon = (backoff_base => '10 ms', backoff_cap => '20 ms', redelivery_base => '20 ms', redelivery_cap => '40 ms');

# Makes an endpoint and a queue of the same name, with a path of its own.
sub prepare
{
	my ($name, %endpoint) = @_;
	my $queue = delete $endpoint{queue} // {};
	$pg->endpoint($name => $provider, url => $provider->url("/$name/v1"), %endpoint);
	$pg->insert('queue', name => $name, endpoints => "{$name}", %soon, %{$queue});
	return;
}

sub respond { my ($name, @responses) = @_; return $provider->script({ path => "/$name/", responses => \@responses }) }

# Submits one job to a queue of that name, and returns its id.
sub submit { my ($name, %more) = @_; return $pg->submit(%more ? () : (prompt => 'Go on.'), queue => $name, idempotency_key => "$name-" . now(), %more) }

sub calls_at { my ($name) = @_; return grep { $_->{path} =~ m{^/\Q$name\E/} } $provider->calls }

sub result { my ($job) = @_; $pg->final_state($job); return $pg->row("SELECT * FROM llmq.result WHERE job_id = '$job'") }

sub classes
{
	my ($job) = @_;
	return $pg->sql("SELECT string_agg(coalesce(error_class, outcome), ' ' ORDER BY delivery, attempt) FROM llmq.attempt WHERE job_id = '$job'");
}

sub uuid5
{
	my ($space, $name) = @_;
	my @bytes = unpack 'C16', sha1(pack('H32', $space =~ tr/-//dr) . encode_utf8($name));
	$bytes[6] = $bytes[6] & 0x0f | 0x50;
	$bytes[8] = $bytes[8] & 0x3f | 0x80;
	return sprintf('%02x' x 4 . ('-' . '%02x' x 2) x 3 . '-' . '%02x' x 6, @bytes);
}

# -- one attempt is one request ----------------------------------------------------------------

# A connection that was used before is closed, or reset, when the next request has been read.
for my $end (qw(close reset))
{
	prepare("kept-$end");
	respond("kept-$end", {});
	$pg->final_state(submit("kept-$end"));
	respond("kept-$end", { status => undef, end => $end }, {});
	my $job = submit("kept-$end");
	is($pg->final_state($job)->{state}, 'succeeded', "$end: the job succeeds in the end");
	is(classes($job), 'interrupted success', "$end: with two attempts");
	my @calls = calls_at("kept-$end");
	is($calls[1]{connection}, $calls[0]{connection}, "$end: the first of them went over the connection that had been kept");
	is(scalar(@calls), 3, "$end: and each was one request");
}

# A server that closes each connection behind its answer, though it did not say so: the next request
# meets the end of it before, in or after its sending.  Where it was sent into the void that is an
# attempt of which nobody can know what became; it is never sent again within that attempt.
my $answer = $json->encode({ model => 'm', choices => [ { message => { content => 'Fine.' }, finish_reason => 'stop' } ] });
prepare('idle-close', max_in_flight => 2, queue => { max_attempts => 100 });
respond('idle-close', { headers => [ [ 'Content-Length', '' . length $answer ] ], body => $answer, end => 'close' });
my @jobs = map { submit('idle-close') } 1 .. 100;
is_deeply([ map { $pg->final_state($_)->{state} } @jobs ], [ ('succeeded') x 100 ], 'idle close: all jobs succeed');
is(scalar(my @idle = calls_at('idle-close')), 100, 'idle close: with one request each at the server');
is($pg->sql(q{SELECT count(*) FROM llmq.attempt WHERE endpoint = 'idle-close' AND outcome <> 'success' AND (error_class, billing) <> ('interrupted', 'unknown')}),
	0, 'idle close: what was sent into the void is recorded as interrupted, billing unknown');

# -- redirects ---------------------------------------------------------------------------------

$pg->secret('key', 'sk-abcdefghij');
for my $status (301, 302, 303, 307, 308)
{
	prepare("redirect$status", credential => 'key');
	respond("redirect$status", { status => $status, headers => [ [ Location => $elsewhere->url('/v1/chat/completions') ] ] });
	my $state = $pg->final_state(submit("redirect$status"));
	is("$state->{state} $state->{error_class} $state->{attempts}", 'dead redirect 1', "$status: a redirect is the end");
}
is(scalar(my @none = $elsewhere->calls), 0, 'where they point to, nobody was called');

# -- the idempotency header ----------------------------------------------------------------------

prepare('keyed', idempotency_header => 'Idempotency-Key', queue => { max_attempts => 2 });
prepare(encode_utf8('zwölf'), url => $provider->url('/twelve/v1'), idempotency_header => 'X-Dedup-Id');
prepare('unkeyed');
respond('keyed', ({ status => 500 }) x 3, {});
my $job = submit('keyed');
is($pg->final_state($job)->{deliveries}, 2, 'keyed: four attempts in two deliveries');
is(join(' ', map { $_->{headers}{'idempotency-key'} } calls_at('keyed')), join(' ', (uuid5($job, 'keyed')) x 4), 'keyed: all carry uuid5(job_id, endpoint)');
$job = submit(encode_utf8('zwölf'));
$pg->final_state($job);
is((calls_at('twelve'))[0]{headers}{'x-dedup-id'}, uuid5($job, 'zwölf'), 'keyed: in the header that the endpoint names, over its name in UTF-8');
$pg->final_state(submit('unkeyed'));
is((calls_at('unkeyed'))[0]{idempotency_key}, undef, 'keyed: an endpoint that names none gets none');

# -- what was asked ---------------------------------------------------------------------------------

my $image = 'data:image/png;base64,iVBORw0KGgo=';
my $messages = [ { role => 'user', content => [ { type => 'text', text => "What is \x{1F40C} this?" }, { type => 'image_url', image_url => { url => $image, detail => 'low' } } ] } ];
prepare('asks');
$pg->final_state($pg->sql(q{SELECT job_id FROM llmq.submit(queue => 'asks', idempotency_key => 'asks', system => 'Be brief.', messages => } . LlmqTest::Cluster::literal($messages)
	  . q{, params => '{"temperature": 0.25, "seed": 12345678901234567890, "top_p": 1e-5, "x_new": {"deep": [null, true, {}]}, "max_tokens": 7}')}));
my $raw = (calls_at('asks'))[0]{body};
my $body = $json->decode($raw);
is_deeply($body->{messages}, [ { role => 'system', content => 'Be brief.' }, @{$messages} ], 'asked: messages arrive as given, with their images');
is_deeply($body->{x_new}, { deep => [ undef, JSON::PP::true, {} ] }, 'asked: a param that nobody here knows too');
like($raw, qr/"seed": ?12345678901234567890\b/, 'asked: numbers with all their digits');
is_deeply([ @{$body}{qw(temperature top_p max_tokens model)} ], [ 0.25, 1e-5, 7, 'stand-in' ], 'asked: and the params that all know');

prepare('asks-anthropic', api => 'anthropic_messages');
$pg->final_state(submit('asks-anthropic', messages => $messages, system => 'Be brief.', params => { max_tokens => 7, top_k => 3 }));
$body = $json->decode((calls_at('asks-anthropic'))[0]{body});
is_deeply($body->{messages}[0]{content}[1], { type => 'image', source => { type => 'base64', media_type => 'image/png', data => 'iVBORw0KGgo=' } }, 'asked: an image in the words of Anthropic');
is_deeply([ @{$body}{qw(max_tokens top_k system)} ], [ 7, 3, 'Be brief.' ], 'asked: params and system there');

# -- JSON --------------------------------------------------------------------------------------------

prepare('json', queue => { require_json => 't' });
respond('json', { text => 'Here it is: {"a": 1}' }, { text => '{"a": 1' }, { text => qq({"a": [1, 2.50, "\x{e9}", 1e999999], "b": {"b": null}}) });
$job = submit('json');
my $result = result($job);
is(classes($job), 'invalid_response invalid_response success', 'json: what does not parse is tried again');
is_deeply($result->{json}, { a => [ 1, 2.5, "\x{e9}", '1e999999' ], b => { b => undef } }, 'json: the value stands in the result');
like($result->{text}, qr/^\{"a": \[1, 2\.50/, 'json: and the text as it came');
prepare('text');
respond('text', { text => '{"a": 1}' });
is(result(submit('text'))->{json}, undef, 'json: where it is not required there is none');
respond('text', { text => 'null' });
is($pg->sql("SELECT json FROM llmq.result WHERE job_id = '" . final_job('text', policy => { require_json => JSON::PP::true }) . q{'}), 'null', 'json: the policy of one job can ask for it; null is a value');

sub final_job { my ($name, %more) = @_; my $id = submit($name, prompt => 'Go on.', %more); $pg->final_state($id); return $id }

# -- tool calls -----------------------------------------------------------------------------------------

my %arguments = (city => "K\x{f6}ln", days => 2);
my $arguments = $json->encode(\%arguments);
my @halves = (substr($arguments, 0, 9), substr($arguments, 9));
my $call = { type => 'function', id => 'call_1', function => { name => 'get_weather', arguments => $arguments } };
my $item = { type => 'function_call', id => 'fc_1', call_id => 'call_1', name => 'get_weather', arguments => $arguments, status => 'completed' };
my $responses = { id => 'r', object => 'response', status => 'completed', model => 'm', output => [$item], usage => { input_tokens => 1, output_tokens => 2 } };
my $gemini = { candidates => [ { content => { role => 'model', parts => [ { functionCall => { name => 'get_weather', args => \%arguments } } ] }, finishReason => 'STOP' } ] };
my $ollama = { model => 'm', message => { role => 'assistant', content => '', tool_calls => [ { function => { name => 'get_weather', arguments => \%arguments } } ] }, done => JSON::PP::false };
my $done = { model => 'm', message => { role => 'assistant', content => '' }, done => JSON::PP::true, done_reason => 'stop' };
my %plain = (
	openai_chat => { model => 'm', choices => [ { message => { role => 'assistant', content => undef, tool_calls => [$call] }, finish_reason => 'tool_calls' } ] },
	openai_responses => $responses,
	anthropic_messages => { type => 'message', model => 'm', stop_reason => 'tool_use', content => [ { type => 'text', text => 'Let me see.' },
		{ type => 'tool_use', id => 'call_1', name => 'get_weather', input => \%arguments } ] },
	gemini => $gemini,
	ollama_chat => { %{$ollama}, done => JSON::PP::true, done_reason => 'stop' });
my %streamed = (
	openai_chat => [
		chat_delta({ tool_calls => [ { index => 0, id => 'call_1', type => 'function', function => { name => 'get_weather', arguments => '' } } ] }),
		(map { chat_delta({ tool_calls => [ { index => 0, function => { arguments => $_ } } ] }) } @halves), chat_delta({}, 'tool_calls') ],
	openai_responses => [ { type => 'response.created', response => { %{$responses}, status => 'in_progress', output => [] } },
		{ type => 'response.output_item.done', output_index => 0, item => $item }, { type => 'response.completed', response => $responses } ],
	anthropic_messages => [ { type => 'message_start', message => { model => 'm', content => [] } },
		{ type => 'content_block_start', index => 0, content_block => { type => 'tool_use', id => 'call_1', name => 'get_weather', input => {} } },
		(map { { type => 'content_block_delta', index => 0, delta => { type => 'input_json_delta', partial_json => $_ } } } @halves),
		{ type => 'content_block_stop', index => 0 }, { type => 'message_delta', delta => { stop_reason => 'tool_use' } }, { type => 'message_stop' } ],
	gemini => [$gemini],
	ollama_chat => [ $ollama, $done ]);

sub chat_delta { my ($delta, $reason) = @_; return { model => 'm', choices => [ { index => 0, delta => $delta, finish_reason => $reason } ] } }

for my $api (sort keys %plain)
{
	prepare("$api-plain", api => $api);
	respond("$api-plain", { headers => [ [ 'Content-Type', 'application/json' ] ], body => $json->encode($plain{$api}) });
	is_tool_call(submit("$api-plain"), "$api, plain");
	prepare("$api-stream", api => $api, stream => 't');
	my @chunks = map { $api eq 'ollama_chat' ? $json->encode($_) . "\n" : 'data: ' . $json->encode($_) . "\n\n" } @{ $streamed{$api} };
	respond("$api-stream", { headers => [ [ 'Content-Type', $api eq 'ollama_chat' ? 'application/x-ndjson' : 'text/event-stream' ] ], chunks => \@chunks });
	is_tool_call(submit("$api-stream"), "$api, streamed");
}

sub is_tool_call
{
	my ($id, $name) = @_;
	my $got = result($id) or return fail("$name: " . $pg->final_state($id)->{error_message});
	is($got->{finish_reason}, 'tool_calls', "$name: the answer is a call of a tool");
	my $first = $got->{tool_calls}[0] // {};
	is($first->{function}{name}, 'get_weather', "$name: of that name");
	is_deeply($json->decode($first->{function}{arguments} // 'null'), \%arguments, "$name: with these arguments, a string that holds JSON");
	return;
}

# -- truncated -------------------------------------------------------------------------------------------

prepare('truncated');
respond('truncated', { text => 'Half an answ', finish_reason => 'length' });
my $state = $pg->final_state($job = submit('truncated'));
is("$state->{state} $state->{error_class} $state->{attempts}", 'dead truncated 1', 'truncated: the job is dead, and not called again');
is($pg->sql("SELECT text FROM llmq.dead_letter WHERE job_id = '$job'"), 'Half an answ', 'truncated: its text is kept');
$result = result(submit('truncated', prompt => 'Go on.', policy => { accept_truncated => JSON::PP::true }));
is("$result->{text} $result->{finish_reason}", 'Half an answ length', 'truncated: a success where that is accepted');

# -- text and numbers ----------------------------------------------------------------------------------------

# A Chat answer around a string's inside, as bytes; more members as given.
sub chat_bytes { my ($inside, $more) = @_; return qq({"model":"m","choices":[{"message":{"content":"$inside"},"finish_reason":"stop"}]) . ($more // '') . '}' }

my $deep = sub { my ($depth) = @_; return ',"deep":' . '[' x $depth . ']' x $depth };
my %text = (
	'nul-escaped' => [ chat_bytes('a\u0000b'), 'ab' ],
	'nul-byte'    => [ chat_bytes("a\0b"), 'ab' ],
	'nul-key'     => [ chat_bytes('a', ',"k\u0000ey":1'), 'a' ],
	'surrogates'  => [ chat_bytes('a\ud800b\udc00'), "a\x{fffd}b\x{fffd}" ],
	'pair'        => [ chat_bytes('a\ud83d\ude00b'), "a\x{1f600}b" ],
	'not-utf8'    => [ chat_bytes("a\xff\xc3\x28b"), "a\x{fffd}\x{fffd}(b" ],
	'bom'         => [ "\xef\xbb\xbf" . chat_bytes('a'), 'a' ],
	'deep'        => [ chat_bytes('a', $deep->(500)), 'a' ],
	'duplicates'  => [ chat_bytes('a', ',"x":1,"x":{"y":2,"y":3},"model":"n"'), 'a' ],
	'bigint'      => [ chat_bytes('a', ',"usage":{"prompt_tokens":99999999999999999999,"completion_tokens":7.0}'), 'a' ],
	'numeric'     => [ chat_bytes('a', ',"x":[1e999999,-1E+200000,1e-999999,1e400,123456789012345678901234567890.5]'), 'a' ],
	'controls'    => [ chat_bytes('\u0001\u001f\u007f\u0085\u2028'), "\x{1}\x{1f}\x{7f}\x{85}\x{2028}" ]);

prepare('bytes');
$provider->script(map { { match => "[job:$_]", path => '/bytes/', responses => [ { body_base64 => encode_base64($text{$_}[0], ''), headers => [ [ 'Content-Type', 'application/json' ] ] } ] } } sort keys %text);
my %id = map { $_ => submit('bytes', prompt => "[job:$_]") } sort keys %text;
my %got = map { $_ => result($id{$_}) } sort keys %text;
is($got{$_} && $got{$_}{text}, $text{$_}[1], "$_: the text is clean") for sort keys %text;
is($pg->sql("SELECT count(*) FROM llmq.result WHERE endpoint = 'bytes' AND jsonb_typeof(response) <> 'object'"), 0, 'every response is an object for PostgreSQL too');
is($got{numeric}{response}{x}[0], '1e999999', 'numeric: a number that no numeric holds is kept as a string');
is($pg->sql("SELECT response #>> '{x,4}' FROM llmq.result WHERE job_id = '$id{numeric}'"), '123456789012345678901234567890.5', 'numeric: another keeps all its digits');
is($got{bigint}{input_tokens}, undef, 'bigint: a count that no bigint holds is not known');
is($got{bigint}{output_tokens}, 7, 'bigint: one that is spelled 7.0 is');
is($got{duplicates}{response}{x}{y}, 3, 'duplicates: of two members the last one stands, as in every jsonb');
is(scalar(my @bytes = calls_at('bytes')), scalar(keys %text), 'each was called once');

respond('bytes', { body => chat_bytes('a', $deep->(600)), headers => [ [ 'Content-Type', 'application/json' ] ] });
$job = final_job('bytes', policy => { max_attempts => 1, max_deliveries => 1 });
is(classes($job), 'invalid_response', 'deep: nested deeper than the limit it is no answer');

# One MiB, not all of it ASCII.
my $line = encode_utf8("Gr\x{fc}n ");
respond('bytes', { text_repeat => [ "Gr\x{fc}n ", 174763 ] });
$job = final_job('bytes');
is($pg->sql("SELECT octet_length(text) || ' ' || (text = repeat('$line', 174763)) FROM llmq.result WHERE job_id = '$job'"), '1048578 true', 'megabyte: an answer of 1 MiB stands in the result as it was sent');

# What a provider says in an error is text as well.
respond('bytes', { status => 400, body_base64 => encode_base64(qq({"error":{"message":"bad \\u0000 \xff \\ud800 thing","code":"a\\u0000b"}}), ''), headers => [ [ 'x-request-id', "r\x{ff}1" ] ] });
$state = $pg->final_state($job = submit('bytes'));
is("$state->{state} $state->{error_class}", 'dead bad_request', 'error: an error with such a message is stored');
like($state->{error_message}, qr/bad  ?\x{fffd} \x{fffd} thing/, 'error: its message is clean');

# -- embeddings --------------------------------------------------------------------------------------------

prepare('embed', api => 'openai_embeddings');
my $one = result(submit('embed', prompt => 'one'))->{embedding};
is(scalar(@{$one}), 8, 'embeddings: a prompt makes a vector');
my $two = result(submit('embed', params => { input => [ 'two', 'one' ] }))->{embedding};
is_deeply([ scalar(@{$two}), scalar(@{ $two->[0] }) ], [ 2, 8 ], 'embeddings: several inputs make a row each');
is_deeply($two->[1], $one, 'embeddings: in the order of the inputs');
is_deeply(result(submit('embed', params => { input => ['one'], dimensions => 3 }))->{embedding}, [ [ @{$one}[ 0 .. 2 ] ] ], 'embeddings: an array of one input too; dimensions are passed on')
  or diag($json->encode($one));
is(result(submit('embed', params => { input => 'one', dimensions => 3 }))->{embedding}[2], $one->[2], 'embeddings: one text is a vector');

# -- the database can be dumped and restored -----------------------------------------------------------------

my $digest = q{SELECT md5(string_agg(r::text, '' ORDER BY job_id)) FROM llmq.result AS r};
wait_for(sub { $pg->sql('SELECT count(*) FROM llmq.lease') == 0 }, 20, 'nothing runs');
my $before = $pg->sql($digest);
my $file = test_dir() . '/dump.sql';
my @where = ('-h', $pg->socket_dir, '-p', 5432, '-U', 'postgres');
LlmqTest::Cluster::run(LlmqTest::Cluster::program('pg_dump'), @where, '-d', 'app', '-f', $file);
$pg->sql('CREATE DATABASE restored', 'postgres');
LlmqTest::Cluster::run(LlmqTest::Cluster::program('psql'), @where, '-d', 'restored', '-qX', '-v', 'ON_ERROR_STOP=1', '-f', $file);
is($pg->sql($digest, 'restored'), $before, 'a dump of all this restores, every result as it was');
is($pg->sql('SELECT count(*) FROM llmq.attempt', 'restored'), $pg->sql('SELECT count(*) FROM llmq.attempt'), 'and every attempt');

# -- another encoding ------------------------------------------------------------------------------------------

for my $encoding (qw(LATIN1 SQL_ASCII))
{
	my $db = lc $encoding;
	$pg->sql("CREATE DATABASE $db ENCODING '$encoding' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'", 'postgres');
	my $created = $pg->query('CREATE EXTENSION llmq', $db);
	is($created->{sqlstate}, '0A000', "$encoding: CREATE EXTENSION refuses");
	like($created->{err}, qr/UTF8/, "$encoding: and says which encoding it needs");
}

finish();
