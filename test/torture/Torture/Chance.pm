# Torture::Chance - random choices that follow from the seed: each actor has a generator of its own,
# so what one decides does not depend on how far another has come.

package Torture::Chance;

use strict;
use warnings;

use Digest::SHA qw(sha256);

# A generator for the actor of that name (xorshift64; Marsaglia 2003).
sub new
{
	my ($class, $seed, @name) = @_;
	my ($state) = unpack 'Q>', sha256(join ' ', $seed, @name);
	return bless { state => $state || 1 }, $class;
}

# A number from 0 to 1, exclusive.
sub number
{
	my ($self) = @_;
	my $x = $self->{state};
	$x ^= $x >> 12;
	$x ^= $x << 25;
	$x ^= $x >> 27;
	$self->{state} = $x;
	return ($x >> 11) / (1 << 53);
}

sub below { my ($self, $limit) = @_; return int($self->number * $limit) }
sub between { my ($self, $from, $to) = @_; return $from + $self->number * ($to - $from) }
sub is { my ($self, $probability) = @_; return $self->number < $probability }
sub one_of { my ($self, @things) = @_; return $things[ $self->below(scalar @things) ] }

# A time between two events that come $mean apart.
sub wait { my ($self, $mean) = @_; return -$mean * log(1 - $self->number) }

# Chooses among (name, weight, name, weight, ...).
sub weighted
{
	my ($self, @choices) = @_;
	my $sum = 0;
	$sum += $choices[ 2 * $_ + 1 ] for 0 .. @choices / 2 - 1;
	my $at = $self->number * $sum;
	while (@choices > 2)
	{
		my ($name, $weight) = splice @choices, 0, 2;
		return $name if ($at -= $weight) < 0;
	}
	return $choices[0];
}

1;
