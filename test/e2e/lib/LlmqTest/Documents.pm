# LlmqTest::Documents - the README and what it leads to: the files of docs/, in the order in which it
# first links them, which is the order to read them in.

package LlmqTest::Documents;

use strict;
use warnings;

use File::Basename qw(dirname);
use List::Util qw(uniq);

my $top = dirname(__FILE__) . '/../../../..';

sub path { my ($path) = @_; return "$top/$path" }

sub read_file
{
	my ($path) = @_;
	open(my $file, '<:raw', path($path)) or die "$path: $!\n";
	local $/;
	return <$file>;
}

sub write_file
{
	my ($path, $text) = @_;
	mkdir path($path =~ s{/[^/]+\z}{}r);
	open(my $file, '>:raw', path($path)) or die "$path: $!\n";
	print {$file} $text;
	close $file or die "$path: $!\n";
	return;
}

# Their paths below the top folder.
sub paths
{
	return uniq 'README.md', read_file('README.md') =~ m{\]\((docs/[\w-]+\.md)[#)]}g;
}

# All that they say, and where they lead to from the top folder.
sub text
{
	return join "\n", map { my $text = read_file($_); m{/} ? $text =~ s{\]\(\.\./}{](}gr : $text } paths();
}

# The fenced blocks of some text: {language, text} each.
sub blocks
{
	my ($text) = @_;
	return map { /\A(\w+)\n(.*)\z/s ? { language => $1, text => $2 } : () } $text =~ /^```(\w+\n.*?)^```$/msg;
}

# The anchors of the headings of a file, made as GitHub does it.
sub anchors
{
	my ($path) = @_;
	my $text = read_file($path) =~ s/^```.*?^```$//msgr;
	return map { lc =~ s/[^\w\- ]//gr =~ tr/ /-/r } $text =~ /^#+ (.*)$/mg;
}

# The links of a file to files: [file, anchor or nothing] each, with the file's path below the top folder.
sub links
{
	my ($path) = @_;
	my $folder = $path =~ m{\A(.*/)} ? $1 : '';
	my @links;
	for (read_file($path) =~ /\]\(([^)\s]+)\)/g)
	{
		next if /\A\w+:/;
		my ($file, $anchor) = split /#/;
		my $to = length $file ? "$folder$file" : $path;
		1 while $to =~ s{[^/]+/\.\./}{};
		push @links, [ $to, $anchor ];
	}
	return @links;
}

1;
