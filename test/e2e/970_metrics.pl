# Metrics: a real Prometheus scrapes llmq-worker and, through prometheus-postgres-exporter with the file that
# make install leaves, the database; all tell the same numbers.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use HTTP::Tiny;
use IO::Socket::INET;
use JSON::PP qw(decode_json);
use LlmqTest;
use LlmqTest::Process;
use Test::More;

my $provider = start_provider();
local $ENV{HOST} = 'server';	# the program's numbers are looked at, and the server's worker comes later
my $pg = start_cluster(preload => 1, conf => { 'llmq.workers' => 0 });
$pg->create_database('app', extension => 1);
$pg->endpoint('priced', $provider, input_price => 3, output_price => 15);
$pg->sql('CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
my $http = HTTP::Tiny->new(timeout => 10);
my $dir = LlmqTest::test_dir();

sub start_worker
{
	my ($metrics) = @_;
	return start_program($pg, name => 'far', args => [ '--metrics', $metrics ]);
}

# -- how it is asked for ----------------------------------------------------------------

for my $bad ('70000', 'localhost:9464', '::1:9464', '127.0.0.1:', '300.0.0.1:80', '')
{
	my $program = start_worker($bad);
	is($program->exit_code, 2, "--metrics \"$bad\" makes no sense");
	like($program->log_text, qr/--metrics is "\Q$bad\E", and must be \[ADDRESS:\]PORT/, 'and the program says what would');
}
my $program = start_worker('0');
my $url = wait_for(sub { $program->log_text =~ m{metrics are at (http://127\.0\.0\.1:\d+/metrics)$}m ? $1 : '' }, 20, 'metrics are served');
pass('without an address it is loopback');
my ($port) = $url =~ /:(\d+)\//;
my $second = start_worker("127.0.0.1:$port");
is($second->exit_code, 1, 'a port that is taken ends the program with 1');
like($second->log_text, qr/cannot serve metrics on 127\.0\.0\.1:$port: Address already in use/, 'and it says which');

my $answer = $http->get($url);
is("$answer->{status} $answer->{headers}{'content-type'}", '200 text/plain; version=0.0.4; charset=utf-8', 'GET is answered in the text format');
$answer = $http->head($url);
is("$answer->{status} " . ($answer->{content} // ''), '200 ', 'HEAD without its body');
is($http->post($url, { content => 'x' x 100_000 })->{status}, 405, 'nothing can be posted');
is($http->get($url =~ s/metrics/other/r)->{status}, 404, 'and nothing else is there');

# -- something to count --------------------------------------------------------------------

$pg->insert('destination', topic => 'done', kind => 'notify', url => 'done');
$pg->wait_for_programs(1);
$provider->script({ match => '[job:bad]', responses => [ { status => 400 } ] }, { match => '[job:again]', responses => [ { status => 500 }, {} ] });
my @idle = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) // die "connect: $!\n" } 1 .. 30;
my %policy = (policy => { backoff_base => '0.01 s', backoff_cap => '0.01 s' });
my @jobs = map { $pg->submit(prompt => "Go. [job:$_]", idempotency_key => $_, outbox => [ { topic => 'done', payload => {} } ], %policy) } qw(one two again bad);
is(join(' ', map { $pg->final_state($_)->{state} } @jobs), 'succeeded succeeded succeeded dead', 'jobs run while connections that say nothing are held open');
close $_ for @idle;
is($pg->sql('SELECT count(*) FROM llmq.attempt'), 5, 'with five calls');

# -- the text and the view -------------------------------------------------------------------

# One sample as a line, whoever says it: labels in order, without those that are empty or say who speaks.
sub line
{
	my ($name, $labels, $value, @without) = @_;
	my %labels = %{$labels};
	delete @labels{@without};
	$labels{le} = $1 if ($labels{le} // '') =~ /^(\d+)\.0$/;		# as Prometheus 3 has them
	return "$name\{" . join(',', map { "$_=$labels{$_}" } grep { $labels{$_} ne '' } sort keys %labels) . '} ' . sprintf('%.12g', $value);
}

sub samples_of_text
{
	my ($text, @without) = @_;
	my @lines;
	for (grep { /^llmq_/ } split /\n/, $text)
	{
		my ($name, $labels, $value) = /^(\w+)(?:\{(.*)\})? (\S+)$/ or die "what is this: $_\n";
		push @lines, line($name, { ($labels // '') =~ /(\w+)="([^"]*)"/g }, $value, @without);
	}
	return join("\n", sort @lines);
}

sub samples_of_view
{
	my ($where, @without) = @_;
	return join("\n", sort map { line($_->{name}, $_->{labels}, $_->{value}, @without) } $pg->rows("SELECT name, labels, value FROM llmq.metric WHERE $where"));
}

sub text { return $http->get($url)->{content} }

# Tests that two ways to get samples come to the same, as soon as nothing more changes; returns them.
sub agree
{
	my ($name, $one, $other) = @_;
	my ($got, $expected) = ('', '');
	eval { wait_for(sub { ($got, $expected) = ($one->(), $other->()); $got ne '' && $got eq $expected }, 20, $name) };
	is($got, $expected, $name);
	return $got;
}

wait_for(sub { text() =~ /^llmq_messages_total\{outcome="sent"\} 3$/m && text() =~ /^llmq_jobs_in_hand 0$/m }, 20, 'the program is done');
my $text = agree('the view has the same samples as the text', sub { samples_of_text(text()) },
	sub { samples_of_view(q{labels ->> 'worker' = 'far'}, qw(worker worker_id)) });
for my $sample ('llmq_calls_total{endpoint=priced,outcome=success} 3', 'llmq_calls_total{endpoint=priced,error_class=server_error,outcome=retry} 1',
	'llmq_calls_total{endpoint=priced,error_class=bad_request,outcome=permanent} 1', 'llmq_call_duration_seconds_count{endpoint=priced} 5',
	'llmq_deliveries_total{outcome=succeeded} 3', 'llmq_deliveries_total{error_class=bad_request,outcome=dead} 1', 'llmq_calls_in_flight{endpoint=priced} 0')
{
	ok(index("$text\n", "$sample\n") >= 0, "among them $sample");
}
my %sums = %{ $pg->row('SELECT sum(input_tokens) AS input, sum(output_tokens) AS output, sum(cost)::float8 AS cost, extract(epoch FROM sum(duration)) AS seconds FROM llmq.attempt') };
ok(index($text, sprintf "llmq_%s_tokens_total{endpoint=priced} $sums{$_}\n", $_) >= 0, "$_ tokens are those of llmq.attempt") for qw(input output);
ok(index($text, line('llmq_cost_total', { endpoint => 'priced' }, $sums{cost})) >= 0, 'so is the cost');
my ($seconds) = $text =~ /llmq_call_duration_seconds_sum\{endpoint=priced\} (\S+)/;
is($seconds + 0, $sums{seconds} + 0, 'and the time that calls took');

open(my $file, '>:raw', "$dir/metrics") or die "$!\n";
print {$file} text();
close $file;
is(`promtool check metrics 2>&1 <$dir/metrics`, '', 'promtool finds no fault with the text');

# -- the exporter --------------------------------------------------------------------------------

$pg->sql('ALTER SYSTEM SET "llmq.workers" = 1', 'postgres');
$pg->reload;
wait_for(sub { $pg->sql(q{SELECT count(*) > 0 FROM llmq.metric WHERE name = 'llmq_jobs_in_hand' AND labels ->> 'worker' = 'server-1'}) eq 't' }, 20, 'the worker in the server says what it counts');
pass('workers in the server are in the view, too');

sub free_port { return IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 1)->sockport }

my @daemons;
END { $_->end('TERM', 10) for @daemons }

my $exporter_port = free_port();
my $path = ($ENV{LLMQ_STAGE} // '') . LlmqTest::Cluster::config('sharedir') . '/llmq/postgres_exporter.yml';
{
	local $ENV{DATA_SOURCE_NAME} = $pg->conninfo('app', 'watcher') . ' sslmode=disable';
	push @daemons, LlmqTest::Process->start("$dir/exporter", 'prometheus-postgres-exporter', "--extend.query-path=$path", '--disable-default-metrics',
		'--disable-settings-metrics', '--no-collector.database', "--web.listen-address=127.0.0.1:$exporter_port");
}
# Each asks the database two dozen things.
sub exported { return $http->get("http://127.0.0.1:$exporter_port/metrics")->{content} }

agree('the exporter, as one who watches, has the same samples as the view', sub { samples_of_text(exported(), 'server') }, sub { samples_of_view('true') });
is((exported() =~ /^# TYPE llmq_call_duration_seconds (\w+)$/m)[0], 'histogram', 'with the histogram as one');

# -- Prometheus --------------------------------------------------------------------------------------

my $prometheus_port = free_port();
open($file, '>', "$dir/prometheus.yml") or die "$!\n";
print {$file} <<"END";
scrape_configs:
  - {job_name: worker, scrape_interval: 1s, static_configs: [{targets: ["127.0.0.1:$port"]}]}
  - {job_name: database, scrape_interval: 3s, scrape_timeout: 3s, static_configs: [{targets: ["127.0.0.1:$exporter_port"]}]}
END
close $file;
push @daemons, LlmqTest::Process->start("$dir/prometheus", 'prometheus', "--config.file=$dir/prometheus.yml", "--storage.tsdb.path=$dir/tsdb",
	"--web.listen-address=127.0.0.1:$prometheus_port");

# The samples that Prometheus has of one of the two, as lines.
sub scraped
{
	my ($job, @without) = @_;
	my $query = $http->www_form_urlencode({ query => qq[{job="$job",__name__=~"llmq_.*"}] });
	my $answer = $http->get("http://127.0.0.1:$prometheus_port/api/v1/query?$query");
	return '' unless $answer->{success};
	return join("\n", sort map { line($_->{metric}{__name__}, $_->{metric}, $_->{value}[1], qw(__name__ job instance), @without) }
		  @{ decode_json($answer->{content})->{data}{result} });
}

agree('Prometheus has the samples of the program', sub { scraped('worker') }, sub { samples_of_text(text()) });
agree('and those of the database', sub { scraped('database', 'server') }, sub { samples_of_view('true') });

is($program->terminate, 0, 'the program ends as it should');
is(samples_of_view(q{labels ->> 'worker' = 'far'}), '', 'and then the view has its numbers no more');

finish();
