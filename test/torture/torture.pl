# Runs Torture and reports: what was killed, what came of it, and what is lost, done twice or wrong. The exit
# code is 1 if anything is.

use strict;
use warnings;

use FindBin;
use lib $FindBin::Bin;
use LlmqTest;
use Torture;

$| = 1;
my $minutes = $ENV{MINUTES} || ($ENV{KILLS} ? 600 : 5);
my $report = Torture::run(seed => $ENV{SEED}, seconds => 60 * $minutes, kills => $ENV{KILLS} || 0, clients => 10, programs => 2, calm => 0.3,
	client_kills => 12);

print "\nkilled:\n";
printf "    %-40s %8d\n", $_, $report->{kills}{$_} for sort keys %{ $report->{kills} };
printf "    %-40s %8d\n", 'restarts of the server', $report->{restarts};
print "\nwhat came of it:\n";
printf "    %-60s %8s\n", @{$_} for @{ $report->{figures} };
my %sum = (lost => 0, twice => 0, wrong => 0);
print "\nwhat must be:\n";
for my $answer (@{ $report->{verdict} })
{
	printf "    %-4s %s\n", $answer->{count} ? 'NOT' : 'ok', $answer->{question};
	print "             $_\n" for @{ $answer->{shown} };
	$sum{ $answer->{kind} } += $answer->{count};
}
print "\nseed $ENV{SEED}: $sum{lost} lost, $sum{twice} twice, $sum{wrong} wrong\n";
my $failed = $sum{lost} || $sum{twice} || $sum{wrong};
for my $file (glob("$report->{dir}/kills.log"), $failed ? (glob("$report->{dir}/*.ledger"), glob(test_dir() . '/*/log')) : ())
{
	my $name = $file =~ s{.*/([^/]+)/log\z}{$1.log}r =~ s{.*/}{}r;
	system 'cp', $file, "$ENV{REPORT}/$name";
}
LlmqTest::leave(1);
exit($failed ? 1 : 0);
