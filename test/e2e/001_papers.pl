# The papers that come with the sources keep up with them: one version everywhere, and a README (with the
# files of docs/ that it leads to) that leaves out no setting, no column and no argument.  What they and the comments
# of the sources name is there.  And no file is too long to read.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../docs";
use Examples qw(is_copied);
use JSON::PP;
use LlmqTest;
use LlmqTest::Documents;
use LlmqTest::Names qw(comments_of find_missing sources);
use Test::More;

sub read_file { return LlmqTest::Documents::read_file(@_) }

my ($version) = read_file('extension/llmq.control') =~ /^default_version = '([\d.]+)'$/m;
my $meta = decode_json(read_file('META.json'));
is($meta->{version}, $version, "META.json has the control file's version");
is($meta->{provides}{llmq}{version}, $version, 'and so has what it provides');
like(read_file('LICENSE'), qr/\AThe PostgreSQL License\n/, 'there is a license');
is((read_file('CHANGELOG.md') =~ /^## (\S+)/m)[0], $version, 'the newest version of the CHANGELOG is this one');
my @documents = LlmqTest::Documents::paths();
my $readme = LlmqTest::Documents::text();
like($readme, qr/\(\Q$version\E\)/, 'the README speaks of this version');

my ($packages) = read_file('test/setup-debian') =~ /^core\)\n\tpackages=\((.*?)^\t\)/ms;
is(join(' ', grep { $readme !~ /(?<![\w-])\Q$_\E(?![\w-])/ } split ' ', $packages =~ s/#.*//gr =~ tr/"//dr =~ s/\$major/15/gr),
	'', 'the README names every package that make test installs');

# -- the files ------------------------------------------------------------------

my @papers = (@documents, qw(CONTRIBUTING.md bgworker/README.md));
is(join(' ', sort map { s{.*/docs/}{docs/}r } glob("$FindBin::Bin/../../docs/*.md")), join(' ', sort grep { m{^docs/} } @documents),
	'the README leads to every file of docs/');
is(join(' ', grep { (my $lines = read_file($_) =~ tr/\n//) > 600 } @papers), '', 'none has more than 600 lines');
my %anchors;
my @astray;
for my $paper (@papers)
{
	for (LlmqTest::Documents::links($paper))
	{
		my ($to, $anchor) = @{$_};
		my $is_there = -e LlmqTest::Documents::path($to);
		my $anchors = defined $anchor && $is_there ? $anchors{$to} //= { map { $_ => 1 } LlmqTest::Documents::anchors($to) } : undef;
		push @astray, "$paper: $to" . (defined $anchor ? "#$anchor" : '') if !$is_there || $anchors && !$anchors->{$anchor};
	}
}
is(join("\n", @astray), '', 'every link in them leads somewhere');
is(`$FindBin::Bin/../check-size`, '', 'no file and no function is too long');

# Files that the papers of those who change llmq speak of, with what is to be found in them.
my %openings = read_file('CONTRIBUTING.md') =~ m{^\| \d \| \[([\w/.]+)\]\S* \| (.*?) \|}mg;
is(keys %openings, 5, 'CONTRIBUTING.md opens five files for the path of a submit');
for my $file (sort keys %openings)
{
	my $source = read_file($file);
	is(join(' ', grep { $source !~ /\Q$_\E\(/ } $openings{$file} =~ /`([^`]+)`/g), '', "$file has what is looked for there");
}

my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1);

# Tests that a query's rows (word, what) are all named in the README.
sub names_all
{
	my ($sql, $name) = @_;
	my @rows = $pg->rows($sql);
	my @missing = map { $_->{what} } grep { $readme !~ /(?<![\w.])(?:llmq\.)?\Q$_->{word}\E(?!\w)/ } @rows;
	ok(@rows > 0, "there are rows to look for: $name");
	is(join(', ', @missing), '', "the README names $name");
	return;
}

names_all(q{SELECT name AS word, name AS what FROM pg_settings WHERE name LIKE 'llmq.%'}, 'every setting');

# -- what roles are given -----------------------------------------------------

for my $kind (qw(submit admin))
{
	$pg->sql("CREATE ROLE $kind; SELECT llmq.grant_$kind('$kind')");
	my $function = qq{FROM pg_proc AS p WHERE p.pronamespace = 'llmq'::regnamespace
		AND has_function_privilege('$kind', p.oid, 'EXECUTE')};
	names_all(qq{SELECT DISTINCT 'llmq.' || p.proname AS word, p.proname AS what $function}, "every function that grant_$kind gives");
	names_all(qq{SELECT a AS word, p.proname || ' ' || a AS what
		FROM (SELECT * $function) AS p, unnest(p.proargnames) AS a}, 'and their arguments');
	my $relation = qq{FROM pg_class AS c WHERE c.relnamespace = 'llmq'::regnamespace AND c.relkind IN ('r', 'v')
		AND has_table_privilege('$kind', c.oid, 'SELECT')};
	names_all(qq{SELECT 'llmq.' || c.relname AS word, c.relname AS what $relation}, "every table and view that grant_$kind gives");
	names_all(qq{SELECT a.attname AS word, c.relname || '.' || a.attname AS what
		FROM (SELECT * , c.oid AS relation $relation) AS c JOIN pg_attribute AS a ON a.attrelid = c.relation
		WHERE a.attnum > 0 AND NOT a.attisdropped}, 'and their columns');
}
names_all(q{SELECT 'llmq.' || proname AS word, proname AS what FROM pg_proc
	WHERE pronamespace = 'llmq'::regnamespace AND proname LIKE 'grant\_%'}, 'every function that grants');

# -- names in comments and documents ---------------------------------------------

my %schema = map { $_->{name} => 1 } $pg->rows(q{SELECT proname AS name FROM pg_proc WHERE pronamespace = 'llmq'::regnamespace
	UNION SELECT relname FROM pg_class WHERE relnamespace = 'llmq'::regnamespace
	UNION SELECT split_part(name, '.', 2) FROM pg_settings WHERE name LIKE 'llmq.%'});

# A text that names only what is not there: each of its names must be found missing.
my $lies = q{llmq_lie_begin() and struct LlmqLie, up to LLMQ_LIE_MAX, as lie_about says in engine/lies.c, worker_lies.sql and test/e2e/999,
	for llmq.lie; llmq_engine_wake in callback_worker.c};
is_deeply([ find_missing($lies, \%schema, 0) ], [ qw(llmq_lie_begin LlmqLie LLMQ_LIE_MAX lie_about engine/lies.c worker_lies.sql test/e2e/999 llmq.lie),
	'llmq_engine_wake in callback_worker.c' ], 'names of what is not there are found in comments');
is_deeply([ find_missing("`lie_about()` in `lies.c` writes `llmq.lie`; lie_about is no name without backticks", \%schema, 1) ],
	[ qw(lie_about lies.c llmq.lie), 'lie_about in lies.c' ], 'names of what is not there are found in documents');
is(join("\n", map { my $path = $_; map { "$path: $_" } find_missing(comments_of($path, read_file($path)), \%schema, 0) } sources()), '',
	'every name in a comment of the sources is of something that is there');
is(join(' ', grep { my ($name) = m{([^/]+)\z}; /\.[ch]$/ && read_file($_) !~ m{\A/\*\n \* \Q$name\E\n} } sources()), '',
	'every source in C begins with its own name');
is(join("\n", map { my $path = $_; map { "$path: $_" } find_missing(read_file($path), \%schema, 1) } @papers), '',
	'every name in a document is of something that is there');

my $tables = read_file('docs/tables.md');
is(join(' ', grep { $tables !~ /^\| `llmq\.$_`/m } map { $_->{name} } $pg->rows(q{SELECT relname AS name FROM pg_class
	WHERE relnamespace = 'llmq'::regnamespace AND relkind = 'r'})), '', 'docs/tables.md has a line for every table');

# What is not for users is named where the inside is described, and there by names that are.
my %inside = map { $_ => 1 } qw(docs/tables.md docs/processes.md CONTRIBUTING.md bgworker/README.md);
my %internal = map { $_->{name} => 1 } $pg->rows(q{SELECT DISTINCT proname AS name FROM pg_proc WHERE pronamespace = 'llmq_internal'::regnamespace});
my ($called, $spelled) = map { my $form = $_; join '|', map { sprintf $form, $_ } sort keys %internal } '%s\(', 'llmq\.%s\b';
for my $paper (@papers)
{
	my $text = read_file($paper);
	my @named = $text =~ /\bllmq_internal\.(\w+)/g;
	is(join(' ', grep { !$internal{$_} } @named), '', "$paper names no function of schema llmq_internal that is not there");
	next if $inside{$paper};
	is(join(' ', @named, $text =~ /(?<![\w.\/])($called|$spelled)/g), '', "$paper names no function that is not for users");
}

# -- words that jobs come to bear ----------------------------------------------

# The statements of llmq's functions and views in which a pattern occurs.
sub statements_with
{
	my ($pattern) = @_;
	return grep { /$pattern/ } map { split /;/, $_->{source} =~ s/--.*//gr } $pg->rows(q{
		SELECT prosrc AS source FROM pg_proc WHERE pronamespace IN ('llmq'::regnamespace, 'llmq_internal'::regnamespace)
		UNION ALL SELECT pg_get_viewdef(oid) FROM pg_class WHERE relnamespace = 'llmq'::regnamespace AND relkind = 'v'});
}

sub module { return ($ENV{LLMQ_STAGE} // '') . LlmqTest::Cluster::config('pkglibdir') . '/llmq.so' }

# The strings of a static array in the module: its symbol, the pointers in it, what they point to.
sub strings_of
{
	my ($array) = @_;
	my $path = module();
	my ($address, $size) = `readelf -sW $path` =~ /^\s*\d+: ([0-9a-f]+)\s+(\d+) OBJECT .* \Q$array\E$/m or return ();
	my %target = map { /^([0-9a-f]+) .*_RELATIVE\s+([0-9a-f]+)$/ ? (hex $1 => hex $2) : () } split /\n/, `readelf -rW $path`;
	open(my $file, '<:raw', $path) or die "$path: $!\n";
	my $bytes = do { local $/; <$file> };
	return map { unpack 'Z*', substr $bytes, $_ } grep { defined } map { $target{ hex($address) + 8 * $_ } } 0 .. $size / 8 - 1;
}

# Tests that words stand in the README as words of llmq do, and that an example is among them.
sub explains
{
	my ($name, $example, @words) = @_;
	my %seen;
	my @unique = sort grep { !$seen{$_}++ } @words;
	ok($seen{$example}, "$name: $example is found where it comes from");
	is(join(' ', grep { $readme !~ /`$_`/ } @unique), '', "the README explains $name");
	return;
}

# Words in such statements that are no classes: outcomes, states, places, names in JSON.
my %other = map { $_ => 1 } qw(succeeded dead retry ready deferred unknown billed);
explains('every error class of C', 'deadline_exceeded', strings_of('error_names'));
explains('every error class of SQL', 'dependency_failed', grep { !$other{$_} } map { /'([a-z]+(?:_[a-z]+)*)'/g }
	statements_with(qr/\b(?:bury\w*|redeliver|recall_lease)\s*\(|INTO llmq\.(?:dead_job|attempt)\b|error_class (?:=|IN)/));
my ($case) = map { /(CASE(?:(?!\bCASE\b).)*END) AS wait_reason/s } statements_with(qr/AS wait_reason/);
explains('every wait_reason of the view', 'after', $case =~ /'([a-z_]+)'/g);
explains('every wait_reason of the configuration', 'no_queue', $pg->sql(q{SELECT prosrc FROM pg_proc WHERE oid = 'llmq_internal.wait_reason'::regproc})
	=~ /THEN\s+'([a-z_]+)'/g);
explains('every wait_reason of C', 'no_secret', strings_of('wait_reasons'));
explains('every SQLSTATE for users', 'PT429', map { /\bfail\(\s*'(\w{5})'/g } statements_with(qr/\bfail\(/));

# -- its examples ------------------------------------------------------------------

# Those of SQL run, in 005_readme.pl, and those of other languages are parts of programs that run.
my %program = map { $_ => 1 } map { m{([^/]+)\z} } glob("$FindBin::Bin/../examples/*.*");
is(join("\n", map { $_->{text} } grep { $_->{language} !~ /\A(?:sql|output)\z/ && !is_copied($_->{text}) } LlmqTest::Documents::blocks($readme)),
	'', 'every example that is not SQL is part of a program in test/examples');
is(join(' ', grep { $readme !~ m{\]\(test/examples/\Q$_\E\)} } sort keys %program), '', 'and the README names each program there');

finish();
