# Torture::Ledger - what clients know, kept outside the database: a line a fact, with the kernel before
# the client goes on, so that neither its own death nor the server's takes it away.
#
#     intent TXN KEY        a transaction that submits KEY is about to be committed
#     committed TXN         the server has said so
#     aborted TXN           the server has said so, or COMMIT was never sent
#     cancel KEY            a cancel is about to be asked for
#     cancelled KEY         it was granted
#     once KEY              the work under an idempotency key of the client's own has been committed
#     wrong TEXT            something that must not be
#
# A transaction with an intent and no outcome is unknown.

package Torture::Ledger;

use strict;
use warnings;

use Fcntl;

sub new
{
	my ($class, $path) = @_;
	sysopen my $file, $path, O_WRONLY | O_APPEND | O_CREAT, 0644 or die "$path: $!\n";
	return bless { file => $file }, $class;
}

sub write
{
	my ($self, @words) = @_;
	my $line = join("\t", map { s/[\t\n]+/ /gr } @words) . "\n";
	syswrite($self->{file}, $line) == length $line or die "ledger: $!\n";
	return;
}

# Reads all ledgers of a folder.  Returns {keys, cancels, once, wrong}: of each key how its transactions ended
# (committed, unknown, aborted: the strongest of them), of each cancel (asked, granted), of each once 1.
sub read_all
{
	my ($dir) = @_;
	my %all = (keys => {}, cancels => {}, once => {}, wrong => [], transactions => {});
	read_one($_, \%all) for glob "$dir/*.ledger";
	return \%all;
}

sub read_one
{
	my ($path, $all) = @_;
	my (%keys_of, %outcome);
	open(my $file, '<', $path) or die "$path: $!\n";
	while (my $line = <$file>)
	{
		chomp $line;
		my ($what, @words) = split /\t/, $line;
		if    ($what eq 'intent')    { push @{ $keys_of{ $words[0] } }, $words[1] }
		elsif ($what eq 'committed' || $what eq 'aborted') { $outcome{ $words[0] } = $what }
		elsif ($what eq 'cancel')    { $all->{cancels}{ $words[0] } //= 'asked' }
		elsif ($what eq 'cancelled') { $all->{cancels}{ $words[0] } = 'granted' }
		elsif ($what eq 'once')      { $all->{once}{ $words[0] } = 1 }
		else                         { push @{ $all->{wrong} }, "@words" }
	}
	my %rank = (aborted => 0, unknown => 1, committed => 2);
	for my $transaction (keys %keys_of)
	{
		my $outcome = $outcome{$transaction} // 'unknown';
		$all->{transactions}{$outcome}++;
		for my $key (@{ $keys_of{$transaction} })
		{
			my $known = \$all->{keys}{$key};
			$$known = $outcome if !defined $$known || $rank{$outcome} > $rank{$$known};
		}
	}
	return;
}

1;
