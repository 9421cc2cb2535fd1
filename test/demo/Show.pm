# Show - how the demo speaks, and how it counts what held.

package Show;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(max);

our @EXPORT = qw(scene say_that show_sql show_table must failures claims short);

binmode STDOUT, ':encoding(UTF-8)';
$| = 1;

my %code = (bold => "\e[1m", dim => "\e[2m", good => "\e[32m", bad => "\e[1;31m", plain => "\e[0m");
my $scenes = 0;
my @claims;
my @failures;

sub paint { my ($style, $text) = @_; return $ENV{LLMQ_DEMO_COLOR} ? "$code{$style}$text$code{plain}" : $text }

# Begins a new part.
sub scene
{
	my ($title) = @_;
	print "\n", paint(bold => ++$scenes . ". $title"), "\n\n";
	return;
}

sub say_that { print "   @_\n"; return }

# Shows a statement as one would type it.
sub show_sql
{
	my ($sql) = @_;
	print map { paint(dim => "   | $_") . "\n" } split /\n/, $sql =~ s/\t/    /gr;
	print "\n";
	return;
}

# Shows rows (arrays of values) under their column names.  Numbers stand to the right.
sub show_table
{
	my ($columns, @rows) = @_;
	my @rows_text = map { [ map { $_ // '' } @{$_} ] } @rows;
	my @width = map { my $i = $_; max map { length $_->[$i] } $columns, @rows_text } 0 .. $#{$columns};
	my @right = map { my $i = $_; !grep { $_->[$i] !~ /^[\d.]*( s)?\z/ } @rows_text } 0 .. $#{$columns};
	my $line = sub {
		my @cell = @_;
		my $text = join '  ', map { sprintf($right[$_] ? '%*s' : '%-*s', $width[$_], $cell[$_]) } 0 .. $#cell;
		return '   ' . $text =~ s/\s+\z//r;
	};
	print $line->(@{$columns}), "\n";
	print '   ', join('  ', map { '-' x $_ } @width), "\n";
	print $line->(@{$_}), "\n" for @rows_text;
	print "\n";
	return;
}

# Says what shall be true, and whether it is.
sub must
{
	my ($holds, $claim, $else) = @_;
	push @claims, $claim;
	if ($holds)
	{
		print '   ', paint(good => 'ok'), " $claim\n";
		return;
	}
	push @failures, $claim;
	print '   ', paint(bad => 'DID NOT HOLD:'), " $claim", defined $else ? " ($else)" : '', "\n";
	return;
}

sub failures { return @failures }
sub claims   { return @claims }

# Cuts a text for a line.
sub short
{
	my ($text, $limit) = @_;
	$text = ($text // '') =~ s/\s+/ /gr;
	return length $text > $limit ? substr($text, 0, $limit - 3) . '...' : $text;
}

1;
