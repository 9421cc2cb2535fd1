# The most telling of the tests again, with programs in the place of the workers in the server: all of
# them are run so by "make test-program".

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

plan(skip_all => 'all tests are run with programs') if ($ENV{HOST} // '') eq 'program';

for my $name (qw(020_worker 220_takeover 430_settle))
{
	my $output = test_dir() . "/$name";
	my $process;
	{
		local $ENV{HOST} = 'program';
		$process = LlmqTest::Process->start($output, $^X, "$FindBin::Bin/$name.pl");
	}
	wait_for(sub { !$process->is_running }, LlmqTest::LIMIT, "$name has ended");
	is($process->{status}, 0, "$name passes with programs") or diag(do { local (@ARGV, $/) = $output; <> });
}

finish();
