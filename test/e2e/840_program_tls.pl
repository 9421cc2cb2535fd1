# Certificates: llmq-worker with sslmode=verify-full reaches the server that it means, and none that
# only says so; a provider with the certificate of somebody else gets no request, and only its jobs fail.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

# The server needs an address, and the same port on each machine that this runs on.
if (my $reason = LlmqTest::Host::enter_network())
{
	plan(skip_all => $reason);
}

my $dir = test_dir();
my $address = LlmqTest::Host::ADDRESS;
make_authority($_) for qw(ours theirs);
make_certificate(@{$_}) for [qw(right ours db.test)], [qw(other ours other.test)], [qw(stranger theirs db.test)];

my $provider = start_provider();
my $pg = new_cluster(preload => 1, conf => { 'llmq.workers' => 0, listen_addresses => $address, ssl => 'on',
	ssl_cert_file => "$dir/server.crt", ssl_key_file => "$dir/server.key" });
use_certificate('right');
write_file($pg->data_dir . '/pg_hba.conf', "local all all trust\nhostssl all all $address/32 trust\n");
$pg->start;
$pg->create_database('app', extension => 1, provider => $provider);
$pg->sql(q{CREATE ROLE remote LOGIN; SELECT llmq.grant_worker('remote')});

# -- the database's ------------------------------------------------------------------

my $worker = program();
$pg->wait_for_programs(1);
is($pg->sql(q{SELECT ssl FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a USING (pid) WHERE a.usename = 'remote'}), 't',
	'with the certificate of the server that is meant a session is encrypted');
is(works('right'), 'succeeded', 'and jobs run');
is($worker->terminate, 0, 'the program ends well');

my %refused = (
	other    => [ 'a certificate for another host', qr/certificate for "other\.test" does not match host name "db\.test"/ ],
	stranger => [ 'a certificate that an unknown authority has signed', qr/certificate verify failed/ ]);
for my $name (sort keys %refused)
{
	my ($what, $says) = @{ $refused{$name} };
	use_certificate($name);
	$pg->reload;
	wait_for(sub { index(served(), content("$dir/$name.crt")) >= 0 }, 20, 'the server shows its new certificate');
	is(program('--once')->exit_code, 4, "$what: with --once the program ends with 4");
	$worker = program();
	ok(wait_for(sub { $worker->log_text =~ /warning: the database cannot be reached: .*$says/ }, 20, 'it says why'), "$what: the log says so");
	ok(wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.worker}) == 0 }, 40, 'no session'), "$what: no session is there, once that of the program before is over");
	use_certificate('right');
	$pg->reload;
	is(works($name), 'succeeded', "$what: the program has not ended, and works when the server has the right one");
	like($worker->log_text, qr/info: connected to the database again/, "$what: which it says");
	is(scalar(my @said = $worker->log_text =~ /cannot be reached/g), 1, "$what: why it was away it has said once");
	$worker->terminate;
}
$worker = program({ root => "$dir/nowhere.crt" });
ok(wait_for(sub { $worker->log_text =~ /cannot be reached: .*root certificate file "[^"]+" does not exist/ }, 20, 'it says why'),
	'without the file of authorities nobody is believed, and the log says so');
is($worker->terminate, 0, 'a program that never reached its database ends when it is told to');

# -- a provider's -------------------------------------------------------------------------

SKIP:
{
	my $bundle = '/etc/ssl/certs/ca-certificates.crt';
	my @believing = ('unshare', '--user', '--map-root-user', '--mount', '--', 'sh', '-c',
		'mount --bind "$1" "$2" && shift 2 && exec "$@"', 'sh', "$dir/ours.crt", $bundle);
	skip 'no machine that believes our authority is to be had here', 1 if system "@believing[0 .. 6] '$believing[7]' @believing[8 .. 10] true 2>/dev/null";

	$pg->endpoint($_ => start_provider(args => [ '--certificate', pem($_) ]), connect_timeout => '5 s') for qw(right other);
	$pg->sql(q{UPDATE llmq.endpoint SET url = replace(replace(url, 'http:', 'https:'), '127.0.0.1', 'localhost') WHERE name IN ('right', 'other')});
	$pg->insert('queue', name => $_, endpoints => "{$_}", max_attempts => 2, max_deliveries => 1, backoff_base => '10 ms') for qw(right other);
	$worker = program({ wrap => \@believing });
	is(works('of-right', queue => 'right'), 'succeeded', 'a provider with the certificate of its host is called');
	my $job = $pg->submit(prompt => 'Go. [job:of-other]', idempotency_key => 'of-other', queue => 'other');
	is($pg->final_state($job)->{state}, 'dead', 'the jobs of one with the certificate of another host fail');
	is($pg->sql("SELECT string_agg(DISTINCT error_class || ' ' || billing, ', '), count(*) FROM llmq.attempt WHERE job_id = '$job'"), 'connection none|2',
		'after the attempts that they have, none of which can have cost anything');
	like($pg->sql("SELECT error_message FROM llmq.attempt WHERE job_id = '$job' LIMIT 1"), qr/no alternative certificate subject name matches target host ?name/, 'which say why');
	is(works('beside'), 'succeeded', 'and others go on');
	$worker->terminate;
}

finish();

# Starts a program that believes our authority.  An option in front: root (the file of authorities), wrap.
sub program
{
	my $options = ref $_[0] ? shift : {};
	my $root = $options->{root} // "$dir/ours.crt";
	return start_program($pg, args => [ '--poll-interval', 1, @_ ], wrap => $options->{wrap},
		conninfo => "host=db.test hostaddr=$address port=5432 dbname=app user=remote sslmode=verify-full sslrootcert=$root");
}

sub works
{
	my ($name, %more) = @_;
	return $pg->final_state($pg->submit(prompt => "Go. [job:$name]", idempotency_key => $name, %more), 30)->{state};
}

sub openssl { return LlmqTest::Cluster::run('openssl', @_) }

sub make_authority
{
	my ($name) = @_;
	openssl(qw(req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1), '-keyout', "$dir/$name.key", '-out', "$dir/$name.crt", '-subj', "/CN=$name authority");
	return;
}

# A certificate for a host; that of db.test is also one for localhost.
sub make_certificate
{
	my ($name, $authority, $host) = @_;
	write_file("$dir/$name.ext", "subjectAltName=DNS:$host" . ($host eq 'db.test' ? ',DNS:localhost' : '') . "\n");
	openssl(qw(req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes), '-keyout', "$dir/$name.key", '-out', "$dir/$name.csr", '-subj', "/CN=$host");
	openssl(qw(x509 -req -days 1 -CAcreateserial), '-in', "$dir/$name.csr", '-CA', "$dir/$authority.crt", '-CAkey', "$dir/$authority.key", '-extfile', "$dir/$name.ext", '-out', "$dir/$name.crt");
	return;
}

# Gives the server a certificate; one that runs takes it with a reload.
sub use_certificate
{
	my ($name) = @_;
	LlmqTest::Cluster::run('cp', "$dir/$name.$_", "$dir/server.$_") for qw(crt key);
	chmod 0600, "$dir/server.key";
	return;
}

# A certificate and its key in one file.
sub pem
{
	my ($name) = @_;
	write_file("$dir/$name.pem", content("$dir/$name.crt") . content("$dir/$name.key"));
	return "$dir/$name.pem";
}

# What the server shows to whoever comes now.
sub served { return `openssl s_client -starttls postgres -connect $address:5432 </dev/null 2>/dev/null` }

sub content
{
	my ($path) = @_;
	open(my $file, '<', $path) or die "$path: $!\n";
	local $/;
	return <$file>;
}

sub write_file
{
	my ($path, $text) = @_;
	open(my $file, '>', $path) or die "$path: $!\n";
	print {$file} $text;
	close $file;
	return;
}
