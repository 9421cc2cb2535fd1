# A minute of torture (test/torture; make torture runs longer): processes of every kind are killed under
# load, and nothing is lost or done twice.  SEED chooses another run than the usual one.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../torture";
use LlmqTest;
use Test::More;
use Torture;

my $seed = $ENV{SEED} || 9;
note("seed $seed");
my $report = Torture::run(seed => $seed, seconds => 45, clients => 6, programs => 2, calm => 2, client_kills => 3);

note(sprintf '%-45s %6d', $_, $report->{kills}{$_}) for sort keys %{ $report->{kills} };
note(sprintf '%-60s %6s', @{$_}) for @{ $report->{figures} };
cmp_ok($report->{restarts}, '>=', 3, 'the server was restarted by kills, time and again');
cmp_ok($report->{kills}{'client, SIGKILL'}, '>=', 20, 'and clients were killed');
for my $answer (@{ $report->{verdict} })
{
	is($answer->{count}, 0, $answer->{question});
	diag("    $_") for @{ $answer->{shown} };
}

# Whoever asks must be able to hear a no: each question, of a run in which things went wrong.
Torture::Verdict::spoil($report->{pg});
my %heard = map { $_->{question} => $_->{count} } Torture::Verdict::ask($report->{pg});
is(join('; ', grep { !$heard{$_} } sort keys %heard), '', 'every question hears when something is wrong');
$report->{pg}->stop;

finish();
