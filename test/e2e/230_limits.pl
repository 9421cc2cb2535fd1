# Open files: a worker raises its soft limit as far as the hard one allows, says once what that means
# for the number of calls, and loses neither a job nor an attempt when there are none left.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use List::Util qw(max);
use LlmqTest;
use Test::More;

use constant MANY => 1000;

# How many calls a worker makes with 1,024 files: the server keeps 128 for itself, the program 64.
use constant ALLOWED => ($ENV{HOST} // '') eq 'program' ? 960 : 896;

my $hard = `bash -c 'ulimit -Hn'`;
chomp $hard;
plan(skip_all => "the hard limit of open files is $hard here") if $hard ne 'unlimited' && $hard < 4096;

my $provider = start_provider();
my $pg;

# A server under limits of open files.
sub start_limited
{
	my ($soft, $hard_limit, %conf) = @_;
	$pg = new_cluster(preload => 1, conf => { 'llmq.poll_interval' => '1s', %conf });
	$pg->start('prlimit', "--nofile=$soft:$hard_limit", '--');
	$pg->create_database('app', extension => 1, provider => $provider);
	return $pg->worker_process($pg->wait_for_worker);
}

# Submits jobs whose calls are not answered before $name is released.
sub submit_many
{
	my ($name, $count) = @_;
	$provider->script({ match => "[job:$name-", responses => [ { hold => $name } ] });
	$pg->insert('queue', name => $name, call_timeout => '200 s', deadline => '210 s');
	$pg->sql("SELECT count(llmq.submit('Go. [job:$name-' || n || ']', '$name-' || n, queue => '$name')) FROM generate_series(1, $count) AS n");
	return;
}

sub calls_of { my ($name) = @_; return grep { $_->{job} =~ /^$name-/ } $provider->calls }
sub most_open { my ($name) = @_; return max(map { $_->{concurrent} } calls_of($name)) }

# Waits until all jobs are done; each was called once.
sub all_done_once
{
	my ($name, $count) = @_;
	ok(wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.result WHERE job_id IN (SELECT job_id FROM llmq.job WHERE queue = '$name')") == $count }, 90, "all of $name are done"),
		"$name: all are done");
	is(scalar(calls_of($name)), $count, "$name: one call for each");
	is($pg->sql("SELECT count(*) || ' ' || count(*) FILTER (WHERE attempt = 1 AND delivery = 1 AND outcome = 'success')
		FROM llmq.attempt JOIN llmq.job USING (job_id) WHERE queue = '$name'"), "$count $count", "$name: one attempt for each");
	return;
}

# -- a low soft limit -----------------------------------------------------------

my $worker = start_limited(1024, 4096);
submit_many('soft', MANY);
ok(wait_for(sub { calls_of('soft') == MANY }, 60, 'all calls are open'), 'with a soft limit of 1,024 files 1,000 calls are made');
is(most_open('soft'), MANY, 'all at once');
like(do { local (@ARGV, $/) = "/proc/$worker/limits"; <> }, qr/^Max open files\s+4096\s+4096/m, 'the worker has raised its limit to the hard one');
is($pg->sql('SELECT count(*) FROM pg_class') > 0, 1, 'other sessions go on');
$provider->release('soft');
all_done_once('soft', MANY);
unlike($pg->log_text, qr/calls at once instead of/, 'nothing has to be said');
$pg->check;
$pg->stop;

# -- a low hard limit -------------------------------------------------------------

start_limited(1024, 1024);
submit_many('hard', MANY);
ok(wait_for(sub { calls_of('hard') == ALLOWED }, 60, 'as many calls as there may be'), 'with a hard limit of 1,024 files ' . ALLOWED . ' calls are made');
is($pg->sql(q{SELECT count(*) FROM llmq.job_status WHERE queue = 'hard' AND state = 'ready'}), MANY - ALLOWED, 'the other jobs wait, undelivered');
is($pg->sql('SELECT in_flight FROM llmq.worker'), ALLOWED, 'the worker has taken no more than it can call');
is(most_open('hard'), ALLOWED, 'no more calls are open than that');
$provider->release('hard');
all_done_once('hard', MANY);
my @said = $pg->log_text =~ /at most @{[ALLOWED]} calls at once instead of 1000/g;
is(scalar(@said), 1, 'the log says so, once');
like($pg->log_text, $pg->has_programs ? qr/the limit of open files is 1024/ : qr/HINT:  Raise the limit of the server/, 'and why, or what helps');
$pg->check;
$pg->stop;

# -- no files left ------------------------------------------------------------------

# The limit is lowered under the running worker: as if its process had used up what it counted on.
$worker = start_limited(1024, 4096);
$pg->final_state($pg->submit(prompt => 'Go. [job:warm]', idempotency_key => 'warm'));
my @fds = glob "/proc/$worker/fd/*";
LlmqTest::Cluster::run('prlimit', '--pid', $worker, '--nofile=' . (@fds + 8) . ':4096');
submit_many('out', 40);
ok(wait_for(sub { $pg->log_text =~ /no call was made: / }, 30, 'the worker runs out of files'), 'a worker that has no file left says so');
cmp_ok(scalar(calls_of('out')), '<', 40, 'not all calls could be made');
is($pg->sql(q{SELECT count(*) FROM llmq.attempt JOIN llmq.job USING (job_id) WHERE queue = 'out'}), 0, 'that costs no attempt');
is($pg->worker_process($pg->wait_for_worker), $worker, 'nor the worker');
LlmqTest::Cluster::run('prlimit', '--pid', $worker, '--nofile=4096:4096');
ok(wait_for(sub { calls_of('out') == 40 }, 30, 'all calls are open'), 'when there are files again all are called');
$provider->release('out');
all_done_once('out', 40);

finish();
