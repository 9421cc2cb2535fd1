# A real engine: llama-server, with weights that test/peers/weights.py writes, its OpenAI and
# Anthropic paths, plain and streamed.  Its own log says how often it was put to work.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../e2e/lib";
use LlmqTest;
use LlmqTest::Process;
use Test::More;

use constant JOBS => 200;

my $root = "$FindBin::Bin/../../build/peers/llama";
-x "$root/usr/bin/llama-server" or $ENV{LLMQ_PEERS_REQUIRED} or plan skip_all => 'llama-server is not here';

my $log = test_dir() . '/llama.log';
my ($base, $process) = start_llama();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1);
$pg->wait_for_worker;

my @names;
for my $api (qw(openai_chat anthropic_messages))
{
	for my $stream (qw(f t))
	{
		my $name = $api . ($stream eq 't' ? '-streamed' : '-plain');
		push @names, $name;
		$pg->insert('endpoint', name => $name, api => $api, url => "$base/v1", model => 'sentences', stream => $stream, max_in_flight => 4);
		$pg->insert('queue', name => $name, endpoints => "{$name}", call_timeout => '60 s', deadline => '120 s');
	}
}
$pg->sql("SELECT count(llmq.submit(prompt => 'Tell me of number ' || n, idempotency_key => '$_-' || n, queue => '$_', params => '{\"max_tokens\": 200}'))
	FROM generate_series(1, ${\JOBS}) AS n") for @names;
wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.job_status WHERE state NOT IN ('succeeded', 'dead', 'cancelled')}) == 0 }, 300, 'every job is final');

for my $name (@names)
{
	my $row = $pg->row("SELECT count(*) AS results, count(*) FILTER (WHERE text ~ '^ ?[a-z .]+\\.\$' AND finish_reason = 'stop') AS sentences,
		count(*) FILTER (WHERE input_tokens > 0 AND output_tokens > 0) AS counted FROM llmq.result WHERE endpoint = '$name'");
	is_deeply([ @{$row}{qw(results sentences counted)} ], [ (JOBS) x 3 ], "$name: every job has an answer of whole sentences, and counts of tokens");
}
is(works(), 4 * JOBS, 'the engine was put to work once for each job');
is($pg->sql('SELECT count(*) FROM llmq.attempt'), 4 * JOBS, 'which is as many attempts as there were');
note($_->{line}) for $pg->rows("SELECT format('%s: %s answers, %s tokens out', endpoint, count(*), sum(output_tokens)) AS line FROM llmq.result GROUP BY endpoint ORDER BY 1");

# -- what a real engine says when it does not finish -------------------------------------------

for my $name (@names)
{
	my $job = $pg->submit(prompt => 'Tell me.', idempotency_key => "short-$name", queue => $name, params => { max_tokens => 1 });
	is($pg->final_state($job, 60)->{error_class}, 'truncated', "$name: an answer that was cut is not taken for one");
	$job = $pg->submit(prompt => 'word ' x 3000, idempotency_key => "long-$name", queue => $name, params => { max_tokens => 10 });
	is($pg->final_state($job, 60)->{error_class}, 'context_length', "$name: a prompt that is too long is refused by name");
}
$process->end('TERM', 20);
finish();

# The program runs where it was unpacked, with the loader and the libraries that came with it.
sub start_llama
{
	my ($loader) = glob "$root/usr/lib*/ld-linux-*.so.*";
	my ($libraries) = glob "$root/usr/lib/*-linux-gnu";
	my @backends = sort { ($b =~ /x64/) <=> ($a =~ /x64/) } glob "$libraries/ggml/backends*/libggml-cpu*.so";
	my $weights = test_dir() . '/sentences.gguf';
	LlmqTest::Cluster::run('/usr/bin/python3', "$FindBin::Bin/weights.py", $weights);
	local $ENV{GGML_BACKEND_PATH} = $backends[0] // '';
	my $started = LlmqTest::Process->start($log, $loader, '--library-path', "$libraries:$libraries/ggml:$libraries/llama", "$root/usr/bin/llama-server",
		'-m', $weights, '--host', '127.0.0.1', '--port', 0, '-np', 8, '-c', 8192, '-t', 2);
	my $url = wait_for(sub { read_log() =~ m{listening on (http://127[\d.:]+)} ? $1 : '' }, 120, 'llama-server listens');
	return ($url, $started);
}

sub read_log
{
	open(my $file, '<', $log) or return '';
	local $/;
	return <$file> // '';
}

sub works { return scalar(my @tasks = read_log() =~ /launch_slot_: .*processing task/g) }
