# Writes README.md and the files of docs/ anew, below a folder that is its argument: `make readme`.

use strict;
use warnings;

use Examples qw(regenerate);
use LlmqTest;

my ($to) = @ARGV;
my ($texts) = regenerate();
for my $path (sort keys %{$texts})
{
	open(my $file, '>:raw', "$to/$path") or die "$to/$path: $!\n";
	print {$file} $texts->{$path};
	close $file or die "$to/$path: $!\n";
}
LlmqTest::leave(1);
