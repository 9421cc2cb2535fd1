# Reads what gcov counted and reports, by file, how many lines of the engine ran.  Fails when these are
# less than 90 of 100, or when a part that did not run is not in the list.
#
#     ... | perl test/coverage/report.pl untaken.txt     in the folder of the build; objects on stdin
#
# A part is a run of lines, one after the other in a function, none of which ran: the branch of an
# error, mostly.  The list names it by file, function and the text of its first line, so that it stays
# named when lines move.

use strict;
use warnings;

use JSON::PP;

use constant LEAST => 90;

my ($list) = @ARGV;
my %named;
open(my $file, '<', $list) or die "$list: $!\n";
while (<$file>)
{
	chomp;
	$named{$_} = 1 if /\S/ && !/^#/;
}

# Adds what one .gcda says: for each line of the source its function, and how often it ran.
sub add_counts
{
	my ($lines, $object) = @_;
	-e "$object.gcda" or return;
	my $json = `gcov --json-format --stdout $object.gcda 2>/dev/null`;
	for my $source (map { @{ $_->{files} } } map { decode_json($_) } grep { /\S/ } split /\n/, $json)
	{
		next unless $source->{file} =~ m{(?:^|/)bgworker/\w+/\w+\.c$};
		for my $line (@{ $source->{lines} })
		{
			my $entry = $lines->{ $line->{line_number} } //= { count => 0 };
			$entry->{count} += $line->{count};
			$entry->{function} //= $line->{function_name} // '';
		}
	}
	return;
}

sub text_of { my ($path) = @_; open(my $in, '<', $path) or die "$path: $!\n"; my @text = <$in>; return @text }

my ($all, $ran, @unnamed, %seen) = (0, 0);
while (my $object = <STDIN>)
{
	chomp $object;
	$object =~ s/\.o$//;
	my ($name) = $object =~ m{([^/]+)$};
	my %lines;
	add_counts(\%lines, $_) for $object, glob("build/unit/$name"), glob("build/unit/*-$name");
	my @text = text_of("$object.c");
	my @numbers = sort { $a <=> $b } keys %lines;
	my $count = grep { $lines{$_}{count} } @numbers;
	printf "%5.1f %% of %4d  %s\n", @numbers ? 100 * $count / @numbers : 0, scalar @numbers, $object;
	($all, $ran) = ($all + @numbers, $ran + $count);
	my $before;
	for my $number (@numbers)
	{
		my $line = $lines{$number};
		my $part = $line->{count} ? undef : "$name.c $line->{function}: " . $text[ $number - 1 ] =~ s/^\s+|\s+$//gr;
		if ($part && !($before && $before eq $line->{function}))
		{
			$seen{$part} = 1;
			push @unnamed, "$part" unless $named{$part};
		}
		$before = $line->{count} ? undef : $line->{function};
	}
}
$all or die "coverage: nothing was counted\n";
printf "%5.1f %% of %d lines of the engine\n", 100 * $ran / $all, $all;
print "not in $list: $_\n" for @unnamed;
print "in $list, and it ran: $_\n" for grep { !$seen{$_} } sort keys %named;
exit(100 * $ran / $all < LEAST || @unnamed ? 1 : 0);
