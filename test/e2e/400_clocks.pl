# The five clocks: connect, first byte, idle, attempt, deadline.  Each has a server that only that
# clock can deal with.  All of them at once, while a steady row of other calls goes on undisturbed.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use IO::Socket::INET;
use List::Util qw(max);
use LlmqTest;
use Socket qw(SOCK_STREAM PF_INET INADDR_LOOPBACK pack_sockaddr_in sockaddr_in);
use Test::More;

# Far more than any clock below; a clock that does not run out shows as a job that is not final.
use constant NEVER => '300 s';

# Longer than the worker may ever be away from its other calls, and much shorter than what would
# hold it: the resolver sleeps for five minutes.
use constant STALL => 5;

my $provider = start_provider();
my $other = start_provider();		# sees the steady row, and nothing else
my $pg = new_cluster(preload => 1);
$pg->start(LlmqTest::Cluster::preload(build_stuck_resolver()));
$pg->create_database('app', extension => 1);
$pg->wait_for_worker;

my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 16) or die "socket: $!\n";
my @full = full_listener();
my $event = qq(data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"content":"Half"},"finish_reason":null}]}\n\n);
my $sse = [ [ 'Content-Type', 'text/event-stream' ] ];
my $json = [ [ 'Content-Type', 'application/json' ] ];

# Endpoint columns, policy, the provider's response; then what the attempt must look like: its class,
# what its message says, and the least time that it takes: long enough that others are called meanwhile, though
# the prompts of megabytes hold up the worker.
my %case = (
	'tls-silence' => { endpoint => { url => 'https://127.0.0.1:' . $silent->sockport, connect_timeout => '2 s' },
		class => 'connection', says => 'no connection within 2 s', least => 2 },
	'no-accept' => { endpoint => { url => "http://127.0.0.1:$full[0]", connect_timeout => '2 s' },
		class => 'connection', says => 'no connection within 2 s', least => 2 },
	'stuck-resolver' => { endpoint => { url => 'http://api.stuck.test', connect_timeout => '2 s' }, jobs => 20,
		class => 'connection', says => 'no connection within 2 s', least => 2 },
	'no-first-byte' => { endpoint => { first_byte_timeout => '2 s' }, response => { status => undef, end => 'hang' },
		class => 'timeout', says => 'no byte within 2 s', least => 2 },
	'silence' => { policy => { call_timeout => '3 s' }, response => { status => undef, end => 'hang' },
		class => 'timeout', says => 'no whole answer within 3 s', least => 3 },
	'drip' => { endpoint => { first_byte_timeout => '3 s', idle_timeout => '3 s' }, policy => { call_timeout => '3.5 s' },
		response => { headers => $json, chunks => [' '], chunk_delay_ms => 1000, chunks_times => 0 },
		class => 'timeout', says => 'no whole answer within 3.5 s', least => 3.5 },
	'drip-streamed' => { endpoint => { stream => 't', idle_timeout => '3 s' }, policy => { call_timeout => '3.5 s' },
		response => { headers => $sse, chunks => ['d'], chunk_delay_ms => 1000, chunks_times => 0 },
		class => 'timeout', says => 'no whole answer within 3.5 s', least => 3.5 },
	'comments' => { endpoint => { stream => 't', idle_timeout => '2 s' }, policy => { call_timeout => '3 s' },
		response => { headers => $sse, chunks => [": still thinking\n\n"], chunk_delay_ms => 100, chunks_times => 0 },
		class => 'timeout', says => 'no whole answer within 3 s', least => 3 },
	'stall' => { endpoint => { stream => 't', idle_timeout => '2 s' }, response => { headers => $sse, chunks => [$event], end => 'hang' },
		class => 'timeout', says => 'no further byte within 2 s', least => 2 },
	'stall-plain' => { endpoint => { idle_timeout => '2 s' },
		response => { headers => [ @{$json}, [ 'Content-Length', '1000' ] ], body => '{"id":', end => 'hang' },
		class => 'timeout', says => 'no further byte within 2 s', least => 2 },
	# Both are larger than what the kernel takes in of a request that nobody reads.
	'unread' => { read => 65536, prompt => 8 << 20, policy => { call_timeout => '2 s' }, response => {},
		class => 'timeout', says => 'no whole answer within 2 s', least => 2 },
	# The request takes longer to send than the answer may take to begin; that clock starts when it is out, which is
	# seconds before it is read: the kernel has the rest.
	'read-slowly' => { read => 1 << 20, prompt => 12 << 20, endpoint => { first_byte_timeout => '6 s', idle_timeout => '6 s' },
		response => { text => 'It was long.' } },
	'too-late' => { policy => { deadline => '3 s' }, response => { hold => 'late' },
		class => 'timeout', says => 'no whole answer within 3 s', least => 3 });

prepare($_) for sort keys %case;
$pg->endpoint(steady => $other, max_in_flight => 1);
$pg->insert('queue', name => 'steady', endpoints => '{steady}');
$other->script({ responses => [ { delay_ms => 10 } ] });
$pg->sql(q{SELECT count(llmq.submit(prompt => '[job:steady-' || n || ']', idempotency_key => 'steady-' || n, queue => 'steady'))
	FROM generate_series(1, 3000) AS n});
$other->wait_for_calls('steady-1', 1);

my $began = now();
submit($_) for sort keys %case;
judge($_) for sort { ($case{$a}{least} // 60) <=> ($case{$b}{least} // 60) } keys %case;

my @steady = grep { $_->{start} >= $began } $other->calls;
cmp_ok(scalar(@steady), '>', 50, 'other calls went on all the time');
cmp_ok(max(map { $steady[$_]{start} - $steady[ $_ - 1 ]{start} } 1 .. $#steady), '<', STALL, 'and never had to wait for the worker');
is(scalar(grep { ($_->{how} // 'open') eq 'client_closed' } @steady), 0, 'each of them got its answer');

# An answer that comes when the job is dead changes nothing.
$provider->release('late');
$pg->sql('UPDATE llmq.queue SET paused = true');
wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.lease") == 0 }, 20, 'nothing runs');
is($pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$case{'too-late'}{job}[0]'"), 'dead', 'too-late: it stays dead');

$pg->stop('fast');
pass('a server with threads in a stuck resolver can be stopped');
$pg->start;
finish();

# Gives a case its own endpoint, queue and rule.
sub prepare
{
	my ($name) = @_;
	my $case = $case{$name};
	$provider->script({ path => "/$name/", responses => [ $case->{response} ], $case->{read} ? (read_bytes_per_s => $case->{read}) : () })
	  if $case->{response};
	$pg->endpoint($name => $provider, url => $provider->url("/$name/v1"), connect_timeout => NEVER, %{ $case->{endpoint} // {} });
	$pg->insert('queue', name => $name, endpoints => "{$name}", call_timeout => NEVER, deadline => NEVER, min_attempt => '0',
		max_attempts => 1, max_deliveries => 1, %{ $case->{policy} // {} });
	return;
}

sub submit
{
	my ($name) = @_;
	my $case = $case{$name};
	my $size = $case->{prompt} // 0;
	for my $number (1 .. $case->{jobs} // 1)
	{
		push @{ $case->{job} }, $pg->sql("SELECT job_id FROM llmq.submit(prompt => '[job:$name-$number]' || repeat('x', $size),
			idempotency_key => '$name-$number', queue => '$name')");
	}
	return;
}

sub judge
{
	my ($name) = @_;
	my $case = $case{$name};
	return judge_success($name) unless $case->{class};
	my @states = map { $pg->final_state($_) } @{ $case->{job} };
	is(scalar(grep { $_->{error_class} ne 'max_deliveries' } @states), 0, "$name: the job is dead") or diag(explain(\@states));
	my @attempts = $pg->rows('SELECT error_class, error_message, billing, extract(epoch FROM duration)::float8 AS duration,
			extract(epoch FROM started_at)::float8 AS started
		FROM llmq.attempt WHERE job_id IN (' . join(', ', map { "'$_'" } @{ $case->{job} }) . ')');
	my $count = @{ $case->{job} };
	is(scalar(@attempts), $count, "$name: after one attempt each");
	is(scalar(grep { $_->{error_class} eq $case->{class} } @attempts), $count, "$name: of class $case->{class}");
	is(scalar(grep { $_->{error_message} =~ /\Q$case->{says}\E/ } @attempts), $count, "$name: ended by its clock ($case->{says})")
	  or diag($attempts[0]{error_message});
	my $billing = $case->{class} eq 'connection' ? 'none' : 'unknown';
	is(scalar(grep { $_->{billing} eq $billing } @attempts), $count, "$name: billing $billing");
	is(scalar(grep { $_->{duration} < $case->{least} } @attempts), 0, "$name: and not before");
	judge_calls($name, $attempts[0]{started});
	for my $attempt ($attempts[0])
	{
		my $end = $attempt->{started} + $attempt->{duration};
		cmp_ok(scalar(grep { $_->{wall} > $attempt->{started} && $_->{wall} < $end } $other->calls), '>', 0,
			"$name: others were called meanwhile");
	}
	return;
}

# What the provider saw: nothing of those that never sent a whole request, one call of the others.
sub judge_calls
{
	my ($name, $started) = @_;
	my $case = $case{$name};
	my @calls = grep { $_->{path} =~ m{^/\Q$name\E/} } $provider->calls;
	if ($case->{class} eq 'connection' || $case->{read})
	{
		is(scalar(@calls), 0, "$name: the provider never had a whole request");
		return;
	}
	is(scalar(@calls), 1, "$name: the provider was called once");
	wait_for(sub { (@calls = grep { $_->{path} =~ m{^/\Q$name\E/} } $provider->calls) && $calls[0]{how} }, 20, "$name: its call has ended");
	is($calls[0]{how}, 'client_closed', "$name: and was left by the worker");
	my ($call) = @calls;
	cmp_ok($call->{wall} + $call->{end} - $call->{start} - $started, '>', $case->{least} - 0.01, "$name: not before its time by the provider's clock");
	return;
}

sub judge_success
{
	my ($name) = @_;
	my $case = $case{$name};
	is($pg->final_state($case->{job}[0], 60)->{state}, 'succeeded', "$name: the job succeeds")
	  or diag(explain([ $pg->rows("SELECT * FROM llmq.attempt WHERE job_id = '$case->{job}[0]'") ]));
	my @calls = grep { $_->{path} =~ m{^/\Q$name\E/} } $provider->calls;
	is(scalar(@calls), 1, "$name: with one call");
	my $started = $pg->sql("SELECT extract(epoch FROM started_at) FROM llmq.attempt WHERE job_id = '$case->{job}[0]'");
	note("the request took $_ s to read") for sprintf '%.1f', $calls[0]{wall} - $started;
	cmp_ok($calls[0]{wall} - $started, '>', 6, "$name: whose request took longer to read than the first byte may take");
	return;
}

# Builds a getaddrinfo that finds no end for hosts under stuck.test, and returns its path.
sub build_stuck_resolver
{
	my $path = test_dir() . '/stuck';
	open(my $file, '>', "$path.c") or die "$path.c: $!\n";
	print {$file} <<'END';
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
	int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");

	if (node == NULL || strstr(node, "stuck.test") == NULL)
		return real(node, service, hints, result);
	sleep(300);
	return EAI_NONAME;
}
END
	close $file;
	LlmqTest::Cluster::run('gcc', '-shared', '-fPIC', '-o', "$path.so", "$path.c");
	return "$path.so";
}

# Makes a listener that accepts nobody, and fills its queue: who comes now gets no answer at all.
# Returns its port, and what keeps it so.
sub full_listener
{
	socket(my $listener, PF_INET, SOCK_STREAM, 0) or die "socket: $!\n";
	bind($listener, pack_sockaddr_in(0, INADDR_LOOPBACK)) or die "bind: $!\n";
	listen($listener, 0) or die "listen: $!\n";
	my ($port) = sockaddr_in(getsockname($listener));
	my @waiting;
	for (1 .. 3)
	{
		my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Blocking => 0, Timeout => 0) or next;
		push @waiting, $socket;
	}
	return ($port, $listener, @waiting);
}
