# The ground that the other tests stand on: the provider's answers and its log, the throwaway
# server, its sessions, and what happens when they are killed.  Needs no llmq.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use CPAN::Meta::YAML;
use File::Glob qw(bsd_glob GLOB_BRACE GLOB_NOCHECK);
use File::Path ();
use HTTP::Tiny;
use JSON::PP;
use LlmqTest;
use Test::More;

my $provider = start_provider(token => 'sesame');
my $http = HTTP::Tiny->new(timeout => 5, max_redirect => 0);

sub ask
{
	my ($text, %more) = @_;
	my $body = encode_json({ model => 'small', messages => [ { role => 'user', content => $text } ], %more });
	return $http->post($provider->url('/v1/chat/completions'),
		{ content => $body, headers => { Authorization => 'Bearer sesame' } });
}

sub answer_of { return decode_json($_[0]{content})->{choices}[0]{message}{content} }

# -- the provider -------------------------------------------------------------

my $reply = ask("Summarise this text:\n\nIt rains. It pours. The old man snores. [job:rain]");
is(answer_of($reply), 'It rains. It pours.', 'an answer is the first sentences of the text that was sent');
like(ask('Hello. [job:sse]', stream => JSON::PP::true)->{content}, qr/\Qdata: [DONE]\E\n\n\z/, 'a streamed answer ends with [DONE]');

my ($call) = $provider->calls('rain');
is($call->{how}, 'finished', 'an answer that was written is in the log as finished');
is($call->{authorization}, 'match', 'the log says that the expected secret was sent');
is(scalar(grep { /sesame/ } map { encode_json($_) } $provider->lines), 0, 'the log never holds the secret');
is($http->post($provider->url('/v1/chat/completions'), { content => '{}' })->{status}, 401, 'a request without the secret is refused');

$provider->script({ match => '[job:limits]', responses => [
	{ status => 429, headers => [ [ 'Retry-After', '1' ] ] }, { status => undef, end => 'reset' }, { text => 'at last' } ] });
$reply = ask('x [job:limits]');
is("$reply->{status} $reply->{headers}{'retry-after'}", '429 1', 'the first call of a job gets the first response');
is(ask('x [job:limits]')->{status}, 599, 'the second gets the second: a reset');
is(answer_of(ask('x [job:limits]')), 'at last', 'the third gets the third');
is(answer_of(ask('x [job:limits]')), 'at last', 'and later ones get the last for ever');
is(join(' ', map { $_->{how} } $provider->calls('limits')), 'finished reset finished finished', 'the log tells how each ended');

$provider->script({ match => '[job:hang]', responses => [ { end => 'hang', status => undef } ] });
$http->timeout(0.2);
ask('x [job:hang]');
wait_for(sub { ($provider->calls('hang'))[0]{how} }, 5, 'the log says how the call ended');
is(($provider->calls('hang'))[0]{how}, 'client_closed', 'a client that gives up is in the log as such');

# -- the server ---------------------------------------------------------------

my $pg = start_cluster();
is($pg->sql('SELECT 1 + 1'), '2', 'the server runs SQL');
is($pg->query('SELECT 1/0')->{sqlstate}, '22012', 'an error comes with its SQLSTATE');
like($pg->query(q{DO $$BEGIN RAISE WARNING 'beware'; END$$})->{err}, qr/WARNING:.*beware/, 'warnings are seen');
is($pg->row('SELECT true AS yes, NULL AS no')->{yes}, 1, 'rows come as hashes');

my ($one, $two) = ($pg->session, $pg->session);
$one->query('BEGIN; CREATE TABLE t AS SELECT 1 AS a');
is($two->query('SELECT * FROM t')->{sqlstate}, '42P01', 'two sessions are two transactions');
$one->query('COMMIT');
$two->send('SELECT pg_sleep(60)');
wait_for(sub { $pg->sql(q{SELECT count(*) FROM pg_stat_activity WHERE query ~ 'sleep' AND state = 'active' AND pid <> pg_backend_pid()}) },
	10, 'the other session sleeps');
$pg->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ 'sleep' AND pid <> pg_backend_pid()});
is($two->result->{sqlstate}, undef, 'a session that was ended says so');

my $backend = $one->query('SELECT pg_backend_pid()')->{out};
$pg->kill_backend($backend);
is($pg->sql('SELECT a FROM t'), '1', 'after a kill of one backend the server answers again');

$pg->kill9;
$pg->start;
is($pg->sql('SELECT a FROM t'), '1', 'after a kill of the postmaster the data is there');
$pg->restart('immediate');
is($pg->sql('SELECT a FROM t'), '1', 'after an immediate shutdown too');

# -- beside each other --------------------------------------------------------

# A rule of a file that has another name now would be one for nobody.
sub names { my ($rule) = @_; return ref $rule eq 'HASH' ? map { names($_) } values %{$rule} : ref $rule ? map { names($_) } @{$rule} : $rule }
my @names = grep { $_ ne '**' } names(CPAN::Meta::YAML->read("$FindBin::Bin/../testrules.yml")->[0]);
my @files = map { bsd_glob("$FindBin::Bin/../../" . s{^build/(unit/.*)}{test/$1.c}r, GLOB_BRACE | GLOB_NOCHECK) } @names;
cmp_ok(scalar(@files), '>', 10, 'test/testrules.yml says of files what they may run beside');
is(join(' ', grep { !-e } @files), '', 'and all that it names are there');

# -- leaving ------------------------------------------------------------------

# A test that is killed takes its server and its provider along.
my $child = fork // die "fork: $!\n";
if ($child == 0)
{
	exec($^X, "-I$FindBin::Bin/lib", '-MLlmqTest', '-e',
		'$| = 1; my $p = start_provider(); my $c = start_cluster();'
		  . 'open my $f, ">", $ARGV[0] . ".new"; print $f join " ", test_dir(), $p->pid, $c->pid; close $f;'
		  . 'rename "$ARGV[0].new", $ARGV[0]; kill KILL => $$', test_dir() . '/pids');
}
waitpid $child, 0;
open(my $file, '<', test_dir() . '/pids') or die "the other test did not start: $!\n";
my ($folder, @pids) = split / /, <$file>;
is(scalar(@pids), 2, 'another test had a provider and a server');
ok(wait_for(sub { @pids == grep { is_gone($_) } @pids }, 10, 'both are gone'), 'when it was killed both ended by themselves');
File::Path::remove_tree($folder) if $folder =~ /llmq-e2e/;

finish();
