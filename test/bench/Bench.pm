# Bench - what the benchmarks share: the server, CPU time, statistics, and how figures are printed.

package Bench;

use strict;
use warnings;

use Exporter 'import';
use JSON::PP;
use List::Util qw(any);
use LlmqTest;

our @EXPORT = qw(bench_cluster cpu_seconds percentile figure heading line is_wanted wrong load_average record);

# Clock ticks a second in /proc/PID/stat: fixed for user space on Linux.
use constant TICKS => 100;

my @parts = split ' ', $ENV{PARTS} // '';
my $wrong = 0;

$| = 1;

# Starts a server like one that is just installed, with llmq, and a database that has the extension.
# It keeps the time of each commit, the clock of most figures here.
sub bench_cluster
{
	my (%conf) = @_;
	my $pg = start_cluster(preload => 1, conf => {
		fsync => 'on', shared_buffers => '256MB', max_wal_size => '4GB', track_commit_timestamp => 'on',
		log_min_error_statement => 'panic', %conf });
	$pg->create_database('bench', extension => 1);
	$pg->wait_for_worker if !exists $conf{'llmq.enabled'};
	return $pg;
}

# The CPU time, user and system, that a process has used.
sub cpu_seconds
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return 0;
	my @fields = split ' ', <$file> =~ s/.*\) //r;
	return ($fields[11] + $fields[12]) / TICKS;
}

sub percentile
{
	my ($percent, @values) = @_;
	my @sorted = sort { $a <=> $b } @values;
	return $sorted[ int($#sorted * $percent / 100 + 0.5) ] // 'NaN';
}

sub load_average
{
	open(my $file, '<', '/proc/loadavg') or return '?';
	return (split ' ', <$file>)[0];
}

sub is_wanted
{
	my ($part) = @_;
	return !@parts || any { $_ eq $part } @parts;
}

sub heading { my ($text) = @_; printf "\n%s (load average %s)\n", $text, load_average(); return }
sub line { my (@words) = @_; print '    ', join(' ', @words), "\n"; return }

# Prints one figure, and the goal beside it if there is one.
sub figure
{
	my ($name, $value, $goal) = @_;
	printf "    %-58s %14s%s\n", $name, $value, defined $goal ? "    goal: $goal" : '';
	return;
}

# Notes what a run has shown, for the report (report.pl): one number, or a list of them.
sub record
{
	my ($key, @values) = @_;
	length($ENV{BENCH_RECORD} // '') or return;
	open(my $file, '>>', $ENV{BENCH_RECORD}) or die "$ENV{BENCH_RECORD}: $!\n";
	print {$file} JSON::PP->new->canonical->encode({ key => $key, values => [ map { 0 + $_ } @values ] }), "\n";
	close $file or die "$ENV{BENCH_RECORD}: $!\n";
	return;
}

# The work itself was not done right: this, unlike any figure, fails the run.
sub wrong
{
	my ($what) = @_;
	print "    WRONG: $what\n";
	$wrong = 1;
	return;
}

sub exit_code { return $wrong }

1;
