# The examples of the documents run, and print what is shown there, and the figures in them are those of
# test/bench/report.json: what `make readme` would write is what is there.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib", "$FindBin::Bin/../docs", "$FindBin::Bin/../bench";
use Examples qw(regenerate is_copied);
use LlmqTest;
use LlmqTest::Documents;
use Report;
use Test::More;

sub is_written
{
	my ($path, $text) = @_;
	my ($is, $is_to_be) = map { [ split /^/ ] } LlmqTest::Documents::read_file($path), $text;
	is_deeply($is, $is_to_be, "$path is as make readme writes it");
	return;
}

local $ENV{HOST} = 'server';	# the documents show what a reader sees who has just made the extension
my ($texts, $pg) = eval { regenerate() };
ok($texts, 'every example runs') or diag($@);
is_written($_, Report::fill($texts->{$_})) for LlmqTest::Documents::paths();
my $papers = Report::papers();
is_written($_, $papers->{$_}) for sort keys %{$papers};

# -- what came of them -------------------------------------------------------------

$pg->use_database('examples');
is($pg->final_state($pg->sql(q{SELECT llmq.job_id('postgres', 'submit', 'book 7, title')}))->{state}, 'succeeded', 'the last job of a run succeeds');
$pg->final_state($pg->sql(q{SELECT llmq.job_id('postgres', 'submit', 'kept summary of ticket 42')}));
like($pg->sql('SELECT summary FROM ticket'), qr/prints everything twice/, 'a function has kept its answer');
is($pg->sql('SELECT count(*) FROM llmq.check()'), 0, 'and llmq.check() finds nothing');

# -- every public function has an example --------------------------------------------

# Views are made of them, and few call them themselves.
my $inner = q{'{wait_until, budget_lines, default_queue}'};
my $examples = join "\n", map { $_->{text} } grep { $_->{language} eq 'sql' || is_copied($_->{text}) }
  LlmqTest::Documents::blocks(LlmqTest::Documents::text());
$pg->sql(q{CREATE ROLE ex_submit; CREATE ROLE ex_admin; SELECT llmq.grant_submit('ex_submit'), llmq.grant_admin('ex_admin')});
my @public = map { $_->{name} } $pg->rows(qq{SELECT DISTINCT p.proname AS name FROM pg_proc AS p
	WHERE p.pronamespace = 'llmq'::regnamespace AND p.proname <> ALL ($inner) AND (p.proname ~ '^grant_(submit|admin|worker)\$'
	OR has_function_privilege('ex_submit', p.oid, 'EXECUTE') OR has_function_privilege('ex_admin', p.oid, 'EXECUTE')) ORDER BY 1});
cmp_ok(scalar(@public), '>', 30, 'there are functions for users');
is(join(' ', grep { $examples !~ /\bllmq\.\Q$_\E\s*\(/ } @public), '', 'each of them has an example that runs');

finish();
