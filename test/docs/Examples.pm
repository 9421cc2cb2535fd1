# Examples - runs the SQL of the documents, in their order, in one session of psql, and writes what
# it printed where they show it.
#
# A block of SQL runs.  When a block called output follows it, that is replaced by what psql printed:
# rows as it aligns them, errors with their SQLSTATE.  An error is expected where the output begins with
# one, and nowhere else.  Nothing in an output is made up or left out, so examples show no times.

package Examples;

use strict;
use warnings;

use Exporter 'import';
use File::Basename qw(dirname);
use LlmqTest;
use LlmqTest::Documents;

our @EXPORT_OK = qw(regenerate is_copied);

my $LIMIT = 90;		# seconds for one block

# To these prompts the stand-in says no, the first time.
my @REFUSED = ('What is left of my credit?', 'Who has spent it?');
my $NO_QUOTA = { status => 429, headers => [ [ 'Content-Type', 'application/json' ] ],
	body => '{"error": {"message": "You exceeded your current quota.", "type": "insufficient_quota", "code": "insufficient_quota"}}' };

# Those that are part of a program in test/examples run there, in the tests.
my %program = map { m{([^/]+)\z} => LlmqTest::Documents::read_file("test/examples/$1") } glob dirname(__FILE__) . '/../examples/*.*';
sub is_copied { my ($block) = @_; return grep { index($_, $block) >= 0 } values %program }

# Returns the documents as they are to be: path to text.  Dies with the block that fails.
sub regenerate
{
	my $provider = start_provider();
	$provider->script(map { { match => $_, responses => [ $NO_QUOTA, {} ] } } @REFUSED);
	local $ENV{HOST} = 'server';		# examples begin with CREATE EXTENSION, and what that gives is a worker in the server
	my $pg = start_cluster(preload => 1);
	$pg->secret(openai => 'sk-test-0123456789');
	$pg->sql('CREATE DATABASE examples', 'postgres');
	my $psql = $pg->session('examples');
	$psql->query("\\pset format aligned\n\\pset tuples_only off\n\\set SHOW_CONTEXT never\n");
	my %text;
	for my $path (LlmqTest::Documents::paths())
	{
		$text{$path} = LlmqTest::Documents::read_file($path);
		$text{$path} =~ s/^```sql\n(.*?)^```\n(?:(\n?)^```output\n(.*?)^```\n)?/run_block($psql, $provider, $path, $1, $2, $3)/gmse;
	}
	return (\%text, $pg);
}

# Runs one block, and returns it with its output if it shows one.
sub run_block
{
	my ($psql, $provider, $path, $sql, $gap, $shown) = @_;
	my $block = "```sql\n$sql```\n";
	my $show = sub { return defined $shown ? $block . $gap . "```output\n$_[0]```\n" : $block };
	return $show->($shown) if is_copied($sql);
	my $url = $provider->url;
	my $result = $psql->query($sql =~ s{https://api\.openai\.com/v1}{$url}gr, $LIMIT);
	my $err = $result->{err} =~ s/^psql:\S+: //mgr =~ s/^LOCATION: .*\n//mgr;
	my $fails = defined $shown && $shown =~ /\AERROR:/;
	my $failed = $err =~ /^(?:ERROR|FATAL):/m;
	die "$path: an example fails:\n$sql$err" if $failed && !$fails;
	my $output = join '', map { s/\s+\z//r . "\n" } split /\n/, "$result->{out}\n$err";
	$output =~ s/\n+\z/\n/;
	return $show->($output =~ s/\A\n+//r);
}

1;
