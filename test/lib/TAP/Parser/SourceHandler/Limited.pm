# TAP::Parser::SourceHandler::Limited - runs programs and Perl tests with a limit of time.
#
# The option "seconds" is how long one file may take; it is asked to end then, and killed 20 s later.

package TAP::Parser::SourceHandler::Limited;

use strict;
use warnings;

use TAP::Parser::IteratorFactory   ();
use TAP::Parser::Iterator::Process ();
use parent 'TAP::Parser::SourceHandler';

TAP::Parser::IteratorFactory->register_handler(__PACKAGE__);

# Outvotes the handlers for Perl and for executables, and leaves .sql to pgTAP.
sub can_handle
{
	my ($class, $source) = @_;
	my $file = $source->meta->{file} or return 0;
	return 1 if $file->{lc_ext} eq '.pl' || $file->{execute};
	return 0;
}

sub make_iterator
{
	my ($class, $source) = @_;
	my $path    = $source->meta->{is_file} ? ${ $source->raw } : die 'not a file';
	my $seconds = $source->config_for('Limited')->{seconds} // 240;
	my @command = ('timeout', '--kill-after=20', $seconds + 10, $path =~ /\.pl\z/ ? ($^X, $path) : $path);
	return TAP::Parser::Iterator::Process->new({ command => \@command, merge => $source->merge });
}

1;
