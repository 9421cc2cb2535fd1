# Svg - three kinds of plots, as text that is the same for the same numbers.

package Svg;

use strict;
use warnings;

use List::Util qw(max min);

my $WIDTH = 760;
my $FONT = 'font-family="Helvetica,Arial,sans-serif"';
my ($INK, $FAINT, $GRID) = ('#1f2328', '#656d76', '#d8dee4');
my @COLORS = ('#0969da', '#bf8700', '#8250df', '#1a7f37', '#cf222e', '#656d76');

sub color { my ($index) = @_; return $COLORS[ $index % @COLORS ] }
sub escape { my ($text) = @_; return $text =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr =~ s/"/&quot;/gr }
sub number { my ($value) = @_; return sprintf('%.1f', $value) =~ s/\.0\z//r }

# Options: size, color, anchor (start, middle, end), bold.
sub text
{
	my ($x, $y, $text, %o) = @_;
	return sprintf qq{<text x="%s" y="%s" font-size="%d" fill="%s" text-anchor="%s"%s>%s</text>\n}, number($x), number($y), $o{size} // 12,
	  $o{color} // $INK, $o{anchor} // 'start', $o{bold} ? ' font-weight="bold"' : '', escape($text);
}

sub rule
{
	my ($x1, $y1, $x2, $y2, $color, $more) = @_;
	return sprintf qq{<line x1="%s" y1="%s" x2="%s" y2="%s" stroke="%s"%s/>\n}, map({ number($_) } $x1, $y1, $x2, $y2), $color // $GRID, $more // '';
}

sub box
{
	my ($x, $y, $width, $height, $color) = @_;
	return sprintf qq{<rect x="%s" y="%s" width="%s" height="%s" fill="%s"/>\n}, map({ number($_) } $x, $y, $width, $height), $color;
}

sub document
{
	my ($height, $title, $subtitle, @parts) = @_;
	return qq{<svg xmlns="http://www.w3.org/2000/svg" width="$WIDTH" height="$height" viewBox="0 0 $WIDTH $height" role="img" $FONT>\n}
	  . '<title>' . escape($title) . "</title>\n" . qq{<rect width="$WIDTH" height="$height" rx="6" fill="#ffffff"/>\n}
	  . text(20, 28, $title, size => 16, bold => 1) . text(20, 47, $subtitle, color => $FAINT) . join('', @parts) . "</svg>\n";
}

# A round number at or above a value: 1, 2, 2.5 or 5 times a power of ten.
sub round_up
{
	my ($value) = @_;
	my $power = 10 ** int(log($value) / log(10) - ($value < 1 ? 1 : 0));
	for my $step (1, 2, 2.5, 5, 10)
	{
		return $step * $power if $step * $power >= $value * 0.9999;
	}
	return $value;
}

sub with_commas { my ($value) = @_; 1 while $value =~ s/^(\d+)(\d{3})/$1,$2/; return $value }

# A number as short as its size allows.
sub short { my ($value) = @_; return $value >= 100 ? with_commas(sprintf '%.0f', $value) : sprintf('%.3g', $value) }

# The frame of a plot of points, and functions from values to places.
sub axes
{
	my ($top, $bottom, $left, $right, $x_max, $y_max, $x_label, $y_label) = @_;
	my $x = sub { $left + ($right - $left) * $_[0] / $x_max };
	my $y = sub { $bottom - ($bottom - $top) * $_[0] / $y_max };
	my $out = text($left, $top - 10, $y_label, size => 11, color => $FAINT) . text($right, $bottom + 34, $x_label, size => 11, color => $FAINT, anchor => 'end');
	for my $part (0 .. 4)
	{
		my ($at_y, $at_x) = ($y_max * $part / 4, $x_max * $part / 4);
		$out .= rule($left, $y->($at_y), $right, $y->($at_y)) . text($left - 8, $y->($at_y) + 4, short($at_y), size => 11, color => $FAINT, anchor => 'end')
		  . text($x->($at_x), $bottom + 18, short($at_x), size => 11, color => $FAINT, anchor => 'middle');
	}
	return ($out, $x, $y);
}

# Lines: {name, points => [[x, y], ...]} each, named at their ends.
sub lines
{
	my ($title, $subtitle, $x_label, $y_label, @lines) = @_;
	my ($top, $bottom, $left, $right) = (86, 330, 60, $WIDTH - 190);
	my @points = map { @{ $_->{points} } } @lines;
	my ($out, $x, $y) = axes($top, $bottom, $left, $right, max(map { $_->[0] } @points), round_up(max map { $_->[1] } @points), $x_label, $y_label);
	my $above = $bottom + 20;
	for my $index (sort { $lines[$a]{points}[-1][1] <=> $lines[$b]{points}[-1][1] } 0 .. $#lines)
	{
		my $line = $lines[$index];
		my $path = join ' ', map { number($x->($_->[0])) . ',' . number($y->($_->[1])) } @{ $line->{points} };
		$out .= qq{<polyline points="$path" fill="none" stroke="} . color($index) . qq{" stroke-width="2.5" stroke-linejoin="round"/>\n};
		$above = min($y->($line->{points}[-1][1]) + 4, $above - 16);
		$out .= text($right + 8, $above, $line->{name}, color => color($index), bold => $index == 0);
	}
	return document($bottom + 50, $title, $subtitle, $out);
}

# Groups of bars: {title, unit, bars => [{name, value, low, high}, ...]} each, to a scale of its own.
sub bars
{
	my ($title, $subtitle, @groups) = @_;
	my ($left, $right, $at) = (230, $WIDTH - 90, 80);
	my $out = '';
	for my $group (@groups)
	{
		my $scale = ($right - $left) / max map { $_->{high} } @{ $group->{bars} };
		$out .= text(20, $at, $group->{title}, bold => 1) . text($right + 70, $at, $group->{unit}, size => 11, color => $FAINT, anchor => 'end');
		for my $bar (@{ $group->{bars} })
		{
			$at += 24;
			my $is_ours = $bar->{name} =~ /^llmq/;
			my $end = $left + $bar->{value} * $scale;
			$out .= text($left - 10, $at, $bar->{name}, anchor => 'end', bold => $is_ours) . box($left, $at - 12, max(1, $bar->{value} * $scale), 16, $is_ours ? $COLORS[0] : '#afb8c1');
			$out .= rule($left + $bar->{low} * $scale, $at - 4, $left + $bar->{high} * $scale, $at - 4, $INK) if $bar->{high} > $bar->{low};
			$out .= text(max($end, $left + $bar->{high} * $scale) + 6, $at, short($bar->{value}), size => 11);
		}
		$at += 38;
	}
	return document($at - 14, $title, $subtitle, $out);
}

# How often values fall into each of 30 bins up to the 99th percentile; the last bin has those above it.
sub histogram
{
	my ($title, $subtitle, $x_label, $values, $marks) = @_;
	my @sorted = sort { $a <=> $b } @{$values};
	my $bins = 30;
	my $most = round_up($sorted[ int($#sorted * 0.99) ]);
	my @count = (0) x $bins;
	$count[ min($bins - 1, int($_ / $most * $bins)) ]++ for @sorted;
	my ($top, $bottom, $left, $right) = (104, 300, 60, $WIDTH - 40);
	my ($out, $x, $y) = axes($top, $bottom, $left, $right, $most, round_up(max @count), $x_label, 'jobs');
	my $width = ($right - $left) / $bins;
	$out .= box($left + $_ * $width + 1, $y->($count[$_]), $width - 2, $bottom - $y->($count[$_]), $COLORS[0]) for grep { $count[$_] } 0 .. $bins - 1;
	my $step = 0;
	for my $mark (grep { $_->{value} <= $most } @{$marks})
	{
		my $at = $x->($mark->{value});
		my @side = $at > $right - 60 ? ($at - 5, 'end') : ($at + 5, 'start');
		$out .= rule($at, $top - 24, $at, $bottom, $INK, ' stroke-dasharray="4 3"')
		  . text($side[0], $top - 16 + 14 * $step++, "$mark->{name} " . short($mark->{value}), size => 11, anchor => $side[1]);
	}
	return document($bottom + 50, $title, $subtitle, $out);
}

1;
