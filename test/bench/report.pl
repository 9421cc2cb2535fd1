# Runs the benches for the report, which test/bench/run starts: those that compare, several times over and
# in turns, so that a moment of trouble falls on one run of each; the long ones once.  What they have noted
# becomes report.json, of which Report.pm makes the papers.

use strict;
use warnings;

use Bench;
use JSON::PP;
use LlmqTest;
use LlmqTest::Documents;
use POSIX qw(strftime);

my $is_quick = length($ENV{QUICK} // '') && $ENV{QUICK};
my $REPEATS = $ENV{REPEATS} || ($is_quick ? 1 : 3);

# Bench, its parts, and what else it is told; in a quick run with less of everything, and without what takes a minute
# whatever it is told.
my @AGAIN = ([ queue => 'speed' ], [ worker => 'trickle submit_many pgbench peers' ], [ relay => 'ordered topics wide' ]);
my @ONCE = ([ queue => 'flat' ], $is_quick ? () : ([ queue => 'backlog', BACKLOG => 200_000 ], [ worker => 'wide mixed' ], [ scale => 'scale wide' ],
	[ limits => 'requests tokens three sliding', LOAD_SECONDS => 60 ]));
my %QUICK = (JOBS => 2000, TRICKLE => 40, MESSAGES => 2000, SPEED_SECONDS => 2, LOAD_SECONDS => 20);

my $notes = LlmqTest::test_dir() . '/notes';
my $started = time;
my $load = load_average();
my %runs;
my @failed;
for my $repeat (1 .. $REPEATS)
{
	run_bench("run $repeat of $REPEATS", @{$_}) for @AGAIN;
}
run_bench('the only run', @{$_}) for @ONCE;

my %report = (runs => \%runs, settings => settings(), machine => machine(), versions => versions(), about => {
	date => strftime('%Y-%m-%d', gmtime $started), minutes => int((time - $started) / 60 + 0.5), repeats => 0 + $REPEATS,
	failed => \@failed, mode => $is_quick ? 'quick' : 'full', commit => $ENV{LLMQ_COMMIT} // '', load_before => $load });
LlmqTest::Documents::write_file('test/bench/report.json', JSON::PP->new->canonical->pretty->encode(\%report));
LlmqTest::leave(1);
exit(@failed ? 1 : 0);

# Runs some parts of a bench, and adds what they have noted to %runs: one list of numbers for each key.
sub run_bench
{
	my ($which, $bench, $parts, %told) = @_;
	print "\n== $bench: $parts ($which)\n";
	unlink $notes;
	local %ENV = (%ENV, $is_quick ? %QUICK : (), %told, PARTS => $parts, BENCH_RECORD => $notes);
	system($^X, '-Itest/e2e/lib', '-Itest/bench', "test/bench/$bench.pl") == 0 or push @failed, "$bench: $parts ($which)";
	my %noted;
	if (open(my $file, '<', $notes))
	{
		for (map { decode_json($_) } <$file>)
		{
			push @{ $noted{ $_->{key} } }, @{ $_->{values} };
		}
	}
	push @{ $runs{$_} }, $noted{$_} for keys %noted;
	return;
}

# -- where it ran ------------------------------------------------------------------

sub first_line
{
	my (@command) = @_;
	open(my $pipe, '-|', '/bin/sh', '-c', '"$@" 2>&1', 'sh', @command) or return '';
	my $line = <$pipe> // '';
	chomp $line;
	return $line;
}

sub in_file
{
	my ($path, $pattern) = @_;
	open(my $file, '<', $path) or return '?';
	return join('', <$file>) =~ $pattern ? $1 : '?';
}

sub machine
{
	return { cpu => in_file('/proc/cpuinfo', qr/^model name\s*: (.*)$/m) =~ s/\s+/ /gr, cores => first_line('nproc'),
		memory => sprintf('%.0f GB', in_file('/proc/meminfo', qr/^MemTotal:\s+(\d+)/m) / 1024**2),
		kernel => first_line('uname', '-sr'), system => in_file('/etc/os-release', qr/^PRETTY_NAME="(.*)"$/m),
		file_system => first_line('/bin/sh', '-c', 'df --output=fstype "$TMPDIR" | tail -n 1') };
}

# Of what takes part: name to version.
sub versions
{
	my $package = ($ENV{NODE_PATH} // '') . '/graphile-worker/package.json';
	my %version = (
		llmq => in_file('extension/llmq.control', qr/^default_version = '(.*)'$/m),
		PostgreSQL => first_line(LlmqTest::Cluster::program('postgres'), '--version') =~ s/.*\(PostgreSQL\) (\S+).*/$1/r,
		libcurl => first_line('curl-config', '--version') =~ s/libcurl //r,
		nginx => first_line('/usr/sbin/nginx', '-v') =~ s{.*nginx/}{}r,
		$runs{'insert.redis_always'} ? (Redis => first_line('redis-server', '--version') =~ s/.*v=(\S+).*/$1/r) : (),
		$runs{'insert.pgq'} ? (PgQ => first_line('dpkg-query', '-W', '-f=${Version}', 'postgresql-' . LlmqTest::Cluster::major() . '-pgq3')) : (),
		$runs{'insert.graphile'} ? ('graphile-worker' => in_file($package, qr/"version": "(.*)"/), 'Node.js' => first_line('node', '--version')) : (),
		$runs{'calls.by_hand_1'} ? (Python => first_line('/usr/bin/python3', '--version') =~ s/Python //r) : ());
	return \%version;
}

# Of the server, where they are not those that it comes with.
sub settings
{
	my $pg = bench_cluster('llmq.enabled' => 'off');
	my %setting = map { $_->{name} => $_->{value} } $pg->rows(q{SELECT name, current_setting(name) AS value FROM pg_settings
		WHERE name IN ('fsync', 'synchronous_commit', 'shared_buffers', 'max_wal_size', 'track_commit_timestamp', 'max_connections')});
	$pg->stop('fast');
	return \%setting;
}
