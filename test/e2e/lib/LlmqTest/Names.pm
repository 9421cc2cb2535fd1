# LlmqTest::Names - what comments and documents name is there: functions, types, constants, files, words of
# the code, and names of schema llmq.
#
# What the sources define is gathered without a parser: a name is there when it stands anywhere in the code, that
# is in C or SQL without its comments.  Documents may also use words of test/ and of the Makefile.

package LlmqTest::Names;

use strict;
use warnings;

use Exporter 'import';
use File::Find qw(find);
use LlmqTest::Documents;

our @EXPORT_OK = qw(comments_of code_of find_missing sources);

# Words that others have made: TLS, libcurl, W3C Trace Context, OpenAI, SQL and the environment.
my %foreign = map { $_ => 1 } qw(close_notify CURL_ERROR_SIZE curl_easy_escape curl_getdate curl_mime trace_id parent_id previous_response_id session_user no_proxy);

my $c_parts = qr{(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')}s;
my $file_name = qr{(?<![\w/.*<>-])[\w-][\w/.-]*\.(?:c|h|sql|pl|pm|py|mjs|md)(?!\w)};
my %known;		# what the sources have: files, includes, tokens, parts of tokens, those of tests

# The paths of the sources below the top folder, but for scripts that make assembles and parts of older versions.
sub sources
{
	my $top = LlmqTest::Documents::path('');
	return map { substr $_, length $top } map { glob "$top$_" } qw(bgworker/*/*.[ch] extension/*.[ch] sql/*/[a-z]*.sql sql/header.sql sql/start.sql);
}

# The comments of a source, without the marks that lines of comments begin with; of SQL also what COMMENT ON says.
sub comments_of
{
	my ($path, $text) = @_;
	my @comments = $path =~ /\.sql$/ ? $text =~ /(--[^\n]*|^COMMENT ON .*?;$)/gms : grep { defined && m{\A/} } $text =~ /$c_parts/g;
	return join("\n", @comments) =~ s{^[ \t]*(?:--|/?\*+/?)[ \t]?}{}mgr;
}

# All else of it.
sub code_of
{
	my ($path, $text) = @_;
	return $path =~ /\.sql$/ ? $text =~ s/--.*//gr : $text =~ s/$c_parts/defined $1 ? ' ' : $2/ger;
}

sub know
{
	return if %known;
	my $top = LlmqTest::Documents::path('');
	find({ no_chdir => 1, wanted => sub { $known{files}{ s/\A\Q$top\E//r } = 1 if -f } },
		grep { -e } map { "$top$_" } qw(README.md CONTRIBUTING.md CHANGELOG.md Makefile LICENSE META.json docs extension bgworker sql test));
	for my $path (sources())
	{
		my $code = code_of($path, LlmqTest::Documents::read_file($path));
		$known{includes}{$_} = 1 for $code =~ /#include [<"]([^>"]+)/g;
		$known{tokens}{$_} = 1 for $code =~ /\b([A-Za-z_]\w*)/g;
	}
	for my $path (grep { m{\A(?:test/|Makefile\z)} && !/001_papers|\.(?:json|md|svg)\z/ } keys %{ $known{files} })
	{
		$known{test_tokens}{$_} = 1 for LlmqTest::Documents::read_file($path) =~ /\b([A-Za-z_]\w*)/g;
	}
	$known{joined} = join ' ', map { "_${_}_" } keys %{ $known{tokens} }, map { m{([^/.]+)\.\w+\z} } keys %{ $known{files} };
	return;
}

# Whether a word of the code is there, whole or as some of the parts of a longer one: a comment may leave out
# the prefix of a module.
sub is_word
{
	my ($word, $is_document) = @_;
	return $foreign{$word} || $word =~ /\Apg_/ || index($known{joined}, "_${word}_") >= 0 || $is_document && $known{test_tokens}{$word};
}

# Whether a name of llmq's own is there, whole; of environment variables scripts have some of their own.
sub is_name
{
	my ($name, $is_document) = @_;
	return $known{tokens}{$name} || $is_document && $name =~ /\ALLMQ_/ && $known{test_tokens}{$name};
}

# The files that a name may mean: a path below the top folder, or its last parts.
sub files_named
{
	my ($name) = @_;
	$name =~ s{\A(?:\.\./)+}{};
	return grep { $_ eq $name || m{/\Q$name\E\z} } keys %{ $known{files} };
}

sub is_file
{
	my ($name) = @_;
	return files_named($name) || grep { $_ eq $name || m{/\Q$name\E\z} } keys %{ $known{includes} };
}

# What a text names and what is not there, each once, in order: of comments everything, of documents what stands
# between backticks or looks like llmq's own.  `schema` has the names of schema llmq, and of its settings.
sub find_missing
{
	my ($text, $schema, $is_document) = @_;
	know();
	$text =~ s{\w+://\S+}{}g;
	my $spans = $is_document ? join "\n", $text =~ s/^[ \t]*```.*?^[ \t]*```$//msgr =~ /`([^`\n]+)`/g : $text;
	my @missing = grep { !is_name($_, $is_document) } $text =~ /(?<![\w.])((?:llmq_[a-z]|Llmq[A-Z]|LLMQ_[A-Z])\w*[^\W_])(?![\w*<])/g;
	push @missing, grep { !is_word($_, $is_document) }
	  $spans =~ m{(?<![\w./\$<-])(?!llmq_|LLMQ_)([A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+)(?![\w*/<-]|\.\w)}g;
	push @missing, grep { !is_file($_) } $spans =~ /($file_name)/g;
	push @missing, grep { my $test = $_; !grep { /\A\Q$test\E/ } keys %{ $known{files} } } $text =~ m{\b(test/(?:e2e|pgtap|unit)/\d\w*)}g;
	push @missing, map { "llmq.$_" } grep { !$schema->{$_} } $text =~ m{(?<![\w./])llmq\.(?!(?:c|h|control|so|conf)\b)([a-z]\w*)(?![\w*])}g;
	# NAME in FILE: the file has the name.
	my $line = $text =~ s/\s+/ /gr;
	while ($line =~ /((?:Llmq|[A-Za-z0-9]+_)\w+)(?:\(\))?`? in `?($file_name)/g)
	{
		my ($name, $file) = ($1, $2);
		push @missing, "$name in $file" if !grep { LlmqTest::Documents::read_file($_) =~ /\b\Q$name\E\b/ } files_named($file);
	}
	my %seen;
	return grep { !$seen{$_}++ } @missing;
}

1;
