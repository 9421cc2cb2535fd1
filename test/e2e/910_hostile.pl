# Hostile company: servers that break the rules of HTTP and TLS, addresses that are none, and names and
# texts that try to become something else.  Each is refused clearly, or fails alone: the worker stays,
# and others' jobs are done meanwhile.

use strict;
use warnings;
use utf8;

use FindBin;
use lib "$FindBin::Bin/lib";
use Encode qw(encode_utf8);
use JSON::PP ();
use LlmqTest;
use LlmqTest::Process;
use Test::More;

# What the worker may grow by while gigabytes are thrown at it, in kB.
use constant GROWTH => 100 * 1024;

my $provider = start_provider();
my ($plain, $tls, $door) = start_hostile();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1);
my $worker = $pg->wait_for_worker;

# Starts the server of broken rules, with a certificate that nobody vouches for.  Returns its ports.
sub start_hostile
{
	my $dir = test_dir();
	LlmqTest::Cluster::run('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', "$dir/key", '-out', "$dir/cert",
		'-days', 1, '-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1');
	my $process = LlmqTest::Process->start("$dir/hostile.log", '/usr/bin/python3', "$FindBin::Bin/../fake/hostile.py",
		'--port-file', "$dir/ports", '--cert', "$dir/cert", '--key', "$dir/key");
	wait_for(sub { $process->is_running or die "hostile.py has ended\n"; -e "$dir/ports" }, 20, 'the hostile server has its ports');
	open(my $file, '<', "$dir/ports") or die "ports: $!\n";
	chomp(my @ports = <$file>);
	return @ports;
}

sub memory
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/status") or die "process $pid is gone\n";
	my ($peak) = join('', <$file>) =~ /VmHWM:\s+(\d+) kB/;
	return $peak;
}

# -- what a server may answer -----------------------------------------------------------------------

# Of each answer what the attempt is called.
my %answers = (
	(map { $_ => 'too_large' } qw(gigabyte gigabyte_unannounced gigabyte_chunked many_headers long_header endless_trailer endless_interim)),
	(map { $_ => 'invalid_response' } qw(chunk_of_letters chunk_beyond_numbers chunk_negative chunk_unterminated chunk_size_unending
		length_negative header_with_nul header_without_colon deep_json many_keys)),
	(map { $_ => 'interrupted' } qw(not_http nothing_but_newlines status_of_letters version_unknown)),
	two_lengths => 'timeout|invalid_response',	# libcurl 7.88 goes by one of them, and waits; newer ones refuse
	(map { $_ => 'timeout' } qw(length_beyond_numbers upgrade byte_a_second)),
	(map { $_ => 'redirect' } qw(metadata to_a_file)),
	gigabyte_error => 'server_error');

my %urls = (
	(map { $_ => "http://127.0.0.1:$plain/$_" } keys %answers),
	'certificate that nobody vouches for' => "https://127.0.0.1:$tls/metadata",
	'plain port that is asked for TLS'    => "https://127.0.0.1:$plain/metadata",
	'TLS port that is asked in plain'     => "http://127.0.0.1:$tls/metadata",
	'door'                                => "http://127.0.0.1:$door/v1",
	'door with TLS'                       => "https://127.0.0.1:$door/v1");
$answers{'certificate that nobody vouches for'} = 'connection';
$answers{'plain port that is asked for TLS'} = 'connection';
$answers{'TLS port that is asked in plain'} = 'interrupted';
$answers{door} = 'interrupted';
$answers{'door with TLS'} = 'connection';

my %once = (max_attempts => 1, max_deliveries => 1, min_attempt => '0');
$pg->endpoint(healthy => $provider);
$pg->insert('queue', name => 'healthy', endpoints => '{healthy}');
$pg->submit(prompt => 'To begin with.', queue => 'healthy', idempotency_key => 'first');
my $before = memory($worker);
my %job;
for my $name (sort keys %urls)
{
	$pg->endpoint($name => $provider, url => $urls{$name}, credential => undef);
	$pg->insert('queue', name => $name, endpoints => qq({"$name"}), %once,
		call_timeout => $answers{$name} =~ /^timeout/ ? '5 s' : '60 s');
	$job{$name} = $pg->submit(prompt => 'Go on.', queue => $name, idempotency_key => $name);
}
my @healthy = map { $pg->submit(prompt => 'Go on.', queue => 'healthy', idempotency_key => "healthy $_") } 1 .. 100;
is_deeply([ map { $pg->final_state($_, 60)->{state} } @healthy ], [ ('succeeded') x 100 ], 'jobs of others are done meanwhile');
for my $name (sort keys %urls)
{
	my $status = $pg->final_state($job{$name}, 60);
	is($status->{state}, 'dead', "$name: the job fails");
	my $attempt = $pg->row("SELECT error_class, error_message FROM llmq.attempt WHERE job_id = '$job{$name}'");
	like($attempt->{error_class}, qr/^(?:$answers{$name})$/, "$name: as what it is");
	note(substr "$attempt->{error_class}: $attempt->{error_message}", 0, 100);
	isnt($attempt->{error_message} // '', '', "$name: and says what happened");
}
is($pg->wait_for_worker, $worker, 'the worker is the same');
SKIP:
{
	skip 'what is freed stays, under the sanitizer', 1 if $ENV{LLMQ_PRELOAD};
	cmp_ok(memory($worker), '<', $before + GROWTH, 'and has not grown with what it was sent');
}
note('the worker had ' . $before . ' kB before, at most ' . memory($worker) . ' kB since');

# -- addresses that are none ------------------------------------------------------------------------

for my $url ('file:///etc/passwd', 'gopher://127.0.0.1:70/', 'ftp://example.org/', 'dict://127.0.0.1/', 'ldap://example.org/', 'smtp://127.0.0.1/',
	'javascript:alert(1)', '//example.org/', 'example.org', '', ' http://example.org', "http://example.org/\r\nX-Evil: 1", 'http://example.org/ a',
	'http://user:password@example.org/', 'https://user@example.org/', 'http://', 'http:///v1', 'http://example.org/#fragment',
	"http://example.org\t/", 'jar:http://example.org/', 'unix:///var/run/docker.sock')
{
	my $shown = $url =~ s/[\r\n\t]/ /gr;
	for my $statement ('INSERT INTO llmq.endpoint (name, api, url) VALUES (' . "'evil', 'openai_chat', " . LlmqTest::Cluster::literal($url) . ')',
		'UPDATE llmq.endpoint SET url = ' . LlmqTest::Cluster::literal($url) . " WHERE name = 'healthy'")
	{
		is($pg->query($statement)->{sqlstate}, '23514', "an endpoint cannot be at '$shown'");
	}
}

# -- names and texts that try to become something else -----------------------------------------------

my @evil = (q{'); DROP TABLE llmq.job; --}, q{"; DROP SCHEMA llmq CASCADE; --}, q{$$; SELECT 1/0; $$}, q{\\'; --}, q{%s%n%I%L%1$s}, q{${credential}},
	q{{"a": "b"}}, q{<script>alert(1)</script>}, q{{evil,"NULL"}}, encode_utf8("\x{202e}\x{feff}\x{1f4a9}"), q{../../etc/passwd}, q{\x00\u0000});
my $count = 0;
for my $evil (@evil)
{
	my $number = ++$count;
	my $name = substr($evil, 0, 60);
	my $quoted = '"' . $name =~ s/"/""/gr . '"';
	$pg->sql("CREATE ROLE $quoted LOGIN; SELECT llmq.grant_submit(" . LlmqTest::Cluster::literal($quoted) . '::regrole)');
	$pg->sql(qq{CREATE SCHEMA $quoted; CREATE TABLE $quoted.$quoted (job jsonb);
		CREATE FUNCTION $quoted.$quoted(job jsonb) RETURNS void LANGUAGE sql AS \$f\$ INSERT INTO $quoted.$quoted VALUES (job) \$f\$}
	  =~ s/\$f\$/\$function$number\$/gr);
	$pg->endpoint($evil => $provider, model => $evil);
	$pg->insert('queue', name => $evil, endpoints => $pg->sql('SELECT ARRAY[' . LlmqTest::Cluster::literal($evil) . ']'));
	my $literal = LlmqTest::Cluster::literal($evil);
	my $job = $pg->sql("SELECT job_id FROM llmq.submit(prompt => $literal, idempotency_key => 'evil ' || $literal, queue => $literal,
		tenant => $literal, system => $literal, model => $literal, run_id => $literal, step => $literal, metadata => to_jsonb(${literal}::text),
		on_complete => " . LlmqTest::Cluster::literal("$quoted.$quoted") . ",
		outbox => jsonb_build_array(jsonb_build_object('topic', $literal, 'dedupe_key', 'key ' || $literal, 'payload', $literal)))");
	is($pg->final_state($job, 60)->{state}, 'succeeded', "text $number: its job succeeds");
	is($pg->sql("SELECT (j.prompt, j.queue, j.tenant, j.system, j.model, j.run_id, j.step, j.metadata #>> '{}', j.idempotency_key)
			IS NOT DISTINCT FROM ($literal, $literal, $literal, $literal, $literal, $literal, $literal, $literal, 'evil ' || $literal)
		FROM llmq.job AS j WHERE j.job_id = '$job'"), 't', "text $number: every text is kept as it was given");
	is($pg->sql("SELECT count(*) FROM llmq.outbox WHERE job_id = '$job' AND topic = $literal AND dedupe_key = 'key ' || $literal AND payload #>> '{}' = $literal"),
		1, "text $number: in its message too");
	is($pg->sql("SELECT count(*) FROM $quoted.$quoted WHERE job ->> 'job_id' = '$job'"), 1, "text $number: the function with that name has run");
	my ($call) = grep { $_->{user} eq Encode::decode_utf8($evil) } $provider->calls;
	is($call->{model}, Encode::decode_utf8($evil), "text $number: the provider got it as it is");
}
is($pg->sql("SELECT count(*) FROM llmq.redrive_queue(" . LlmqTest::Cluster::literal($_) . ")"), 1, 'a text is a name of a queue, and nothing else') for @evil;
is($pg->wait_for_worker, $worker, 'the worker is the same');

# -- locks ---------------------------------------------------------------------------------------------

my ($first, $second) = map { $pg->session('app') } 1 .. 2;
my $lock = q{SELECT llmq_internal.lock_topic(0, 'topic', false)};
is($first->query("BEGIN; $lock")->{out}, 't', 'a topic is locked');
is($second->query($lock)->{out}, 'f', 'and another worker does not get it meanwhile');
is($first->query(q{SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'})->{out}, 0,
	'not with an advisory lock, which any role could hold');
$first->query('ROLLBACK');
is($second->query($lock)->{out}, 't', 'until the transaction ends');

finish();
