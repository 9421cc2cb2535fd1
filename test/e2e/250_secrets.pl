# Secrets: by name, from a file or the environment, read anew for each call; refused when others can
# read them; and never to be seen anywhere, even if the provider sends them back.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

# Neither looks like the key of any provider.
my $key = 'unmistakable/7f3a91c2';
my $env_key = 'fromenvironment/55d0e8';
my $any_key = qr/unmistakable|fromenvironment/;
my $provider = start_provider(token => $key);
my $env_provider = start_provider(token => $env_key);
$ENV{LLMQ_SECRET_FROM_ENV} = $env_key;
my $pg = start_cluster(preload => 1, conf => { log_statement => 'all', log_min_messages => 'debug2', log_min_duration_statement => 0,
	log_parameter_max_length_on_error => -1, 'llmq.poll_interval' => '1s' });
$pg->create_database('app', extension => 1);
delete $ENV{LLMQ_SECRET_FROM_ENV};
$pg->wait_for_worker;

# An endpoint and a queue of that name, with a secret of that name.
sub endpoint
{
	my ($name, $to, %columns) = @_;
	$pg->endpoint($name => $to // $provider, credential => $name, %columns);
	$pg->insert('queue', name => $name, endpoints => "{$name}", backoff_base => '10 ms', redelivery_base => '10 ms');
	return;
}

sub submit { my ($queue, $name) = @_; return $pg->submit(prompt => "Go. [job:$name]", idempotency_key => $name, queue => $queue) }
sub calls { return scalar(my @calls = $provider->calls(@_)) }
sub attempts { my ($job) = @_; return $pg->sql("SELECT count(*) FROM llmq.attempt WHERE job_id = '$job'") }
sub succeeds { my ($job, $what) = @_; return is($pg->final_state($job)->{state}, 'succeeded', $what) }
sub authorization { my ($name) = @_; return ($provider->calls($name))[-1]{authorization} }

# Waits until the log says why jobs wait.
sub log_says { my ($from, $text) = @_; return ok(wait_for(sub { $pg->log_text($from) =~ /WARNING:.*$text/i }, 20, "the log says: $text"), "the log says: $text") }

# -- where they come from -------------------------------------------------------

$pg->secret(file => $key);
endpoint('file');
succeeds(submit('file', 'by-file'), 'a secret is read from its file');
is(authorization('by-file'), 'match', 'and sent');

endpoint('from_env', $env_provider);
succeeds(submit('from_env', 'by-env'), 'another comes from the environment');
is(($env_provider->calls('by-env'))[0]{authorization}, 'match', 'and is sent');

$pg->secret(azure => "$key\n");
endpoint('azure', undef, headers => { 'api-key' => '${credential}' });
succeeds(submit('azure', 'by-header'), 'a secret can stand in another header');
my ($call) = $provider->calls('by-header');
is($call->{headers}{'api-key'}, 'match', 'without the end of its line');
is($call->{headers}{authorization}, undef, 'and the usual header is not sent');

# -- rotated ----------------------------------------------------------------------

$pg->secret(file => 'sk-old');
my $status = $pg->final_state(submit('file', 'old'));
is("$status->{state} $status->{error_class}", 'dead auth', 'a secret that the provider does not take kills the job');
is(authorization('old'), 'mismatch', 'the one in the file was sent');
$pg->secret(file => $key);
succeeds(submit('file', 'new'), 'a secret that was rotated is used at once');
is(calls('new'), 1, 'by the first call');

# -- not to be had ---------------------------------------------------------------------

my $from = $pg->log_size;
endpoint('late');
my $job = submit('late', 'late');
log_says($from, 'secret "late" has no file in llmq.secrets_directory, and no value in LLMQ_SECRET_LATE');
is($pg->sql("SELECT state || ' ' || deliveries FROM llmq.job_status WHERE job_id = '$job'"), 'ready 0', 'a job without its secret waits, undelivered');
$pg->secret(late => $key);
succeeds($job, 'until it is there');
is(calls('late') . ' ' . attempts($job), '1 1', 'with one attempt');

for my $mode (0640, 0604)
{
	my $name = sprintf 'mode_%04o', $mode;
	$from = $pg->log_size;
	$pg->secret($name => $key);
	chmod $mode, $pg->socket_dir . "/secrets/$name";
	endpoint($name);
	$job = submit($name, $name);
	log_says($from, "access to the file of secret \"$name\": set its mode to 600");
	is($pg->sql("SELECT state || ' ' || deliveries FROM llmq.job_status WHERE job_id = '$job'"), 'ready 0', 'its job waits');
	is(calls($name) . ' ' . attempts($job), '0 0', 'without an attempt');
	chmod 0600, $pg->socket_dir . "/secrets/$name";
	succeeds($job, 'until it is private');
}

# It may go between a claim and its call, and a worker that just saw it may still believe in it.
$pg->secret(fickle => $key);
endpoint('fickle');
succeeds(submit('fickle', 'fickle1'), 'a secret is there');
unlink $pg->socket_dir . '/secrets/fickle';
$from = $pg->log_size;
$job = submit('fickle', 'fickle2');
log_says($from, 'secret "fickle" has no file');
$pg->secret(fickle => $key);
succeeds($job, 'a job whose secret went away waits until it is back');
is(calls('fickle2') . ' ' . attempts($job), '1 1', 'with one attempt');
cmp_ok($pg->sql("SELECT deliveries FROM llmq.job_status WHERE job_id = '$job'"), '<=', 2, 'and was not handed to and fro meanwhile');

# -- sent back ---------------------------------------------------------------------------

my %echo = (
	json => { status => 401, body => qq({"error":{"message":"Incorrect API key provided: $key. You sent Authorization: Bearer $key","type":"invalid_request_error","code":"invalid_api_key"}}) },
	text => { status => 401, headers => [ [ 'Content-Type', 'text/plain' ], [ 'x-request-id', "req-$key" ] ], body => "Authorization: Bearer $key is not known here" },
	escaped => { status => 400, body => '{"error":{"message":"you sent ' . join('', map { sprintf '\\u%04x', ord } split //, $key) . '"}}' },
	plain => { status => 403, body => qq({"error":{"message":"There is nothing about $key here"}}) },
	cut => { status => 400, headers => [ [ 'Content-Type', 'text/plain' ] ], body => 'x' x 480 . " $key" x 20 },
	server => { status => 500, body => qq({"error":{"message":"Bearer $key","code":"$key"}}) },
	broken => { status => 200, body => "<html>Bearer $key</html>" },
	frame => { status => 200, body => qq({"error":{"message":"Bearer $key"}}) });
for my $name (sort keys %echo)
{
	$provider->script({ match => "[job:echo-$name]", responses => [ $echo{$name} ] });
	$job = $pg->submit(prompt => "Go. [job:echo-$name]", idempotency_key => "echo-$name", queue => 'file', policy => { max_attempts => 2, max_deliveries => 1 });
	$status = $pg->final_state($job);
	is($status->{state}, 'dead', "echo-$name: dead");
	unlike(join("\n", map { ($_->{error_message} // '') . ' ' . ($_->{request_id} // '') } $pg->rows("SELECT * FROM llmq.attempt WHERE job_id = '$job'"), $status),
		qr/\Q@{[substr $key, 0, 8]}\E/, "echo-$name: its error does not hold the key that the provider sent back");
}

# -- nowhere to be seen -------------------------------------------------------------------

# While calls with secrets are under way, too.
$provider->script({ match => '[job:open-', responses => [ { hold => 'open' } ] });
submit('file', 'open-1');
$provider->wait_for_calls('open-1', 1);
my @places = map { $_->{name} } $pg->rows(q{SELECT oid::regclass::text AS name FROM pg_class
	WHERE relnamespace = 'llmq'::regnamespace AND relkind IN ('r', 'v')
	UNION ALL VALUES ('pg_stat_activity'), ('pg_settings'), ('pg_file_settings')});
cmp_ok(scalar(@places), '>', 20, 'there are many places to look');
for my $place (@places)
{
	my @found = grep { /$any_key/ } $pg->sql("SELECT t::text FROM $place AS t");
	is(scalar(@found), 0, "$place does not hold a key");
}
$provider->release('open');
my $dump = test_dir() . '/dump.sql';
LlmqTest::Cluster::run(LlmqTest::Cluster::program('pg_dump'), '-h', $pg->socket_dir, '-p', 5432, '-U', 'postgres', '-f', $dump, 'app');
my $text = do { local (@ARGV, $/) = $dump; <> };
like($text, qr/by-file/, 'a dump holds the jobs');
unlike($text, qr/$any_key/, 'and no key');
like($pg->log_text, qr/by-file/, 'the log of the server, which logs all, holds the jobs');
unlike($pg->log_text, qr/$any_key/, 'and no key');

finish();
