# Races for one idempotency key, between real sessions: one wins, the others are told so, and nothing
# else can happen to them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

use constant { SESSIONS => 100, GATE => 4711 };

my $pg = start_cluster(preload => 1, conf => { max_connections => SESSIONS + 20, log_lock_waits => 'on' });
$pg->create_database('app', extension => 1);
$pg->sql(q{INSERT INTO llmq.queue (name, paused) VALUES ('default', true)});
my @sessions = map { $pg->session } 1 .. SESSIONS;
my $gate = $pg->session;
my $round = 0;

# Runs in every session of @$who, at the same moment, the statement that $sql->($index) returns, in a
# transaction that stays open for $open->($index) seconds and ends as $end->($index) says.  Returns a
# list of [sqlstate, output, end (ROLLBACK if COMMIT failed), milliseconds].
sub race
{
	my ($who, $sql, %options) = @_;
	my $isolation = $options{isolation} // 'READ COMMITTED';
	$gate->query('SELECT pg_advisory_lock(' . GATE . ')');
	my @ends;
	for my $index (0 .. $#$who)
	{
		my $statement = $sql->($index);
		my $open = $options{open} ? $options{open}->($index) : 0;
		$ends[$index] = $options{end} ? $options{end}->($index) : 'COMMIT';
		$who->[$index]->send(join "\n", 'SELECT FROM pg_advisory_lock_shared(' . GATE . ');',
			'SELECT FROM pg_advisory_unlock_shared(' . GATE . ');', "BEGIN ISOLATION LEVEL $isolation;",
			'\\timing on', "$statement;", '\\timing off', '\\set state :SQLSTATE', "SELECT FROM pg_sleep($open);",
			"$ends[$index];", '\\echo state :state :SQLSTATE');
	}
	my $waiting = q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted};
	wait_for(sub { $pg->sql($waiting) == @$who }, 60, 'all sessions stand at the gate');
	$gate->query('SELECT pg_advisory_unlock(' . GATE . ')');
	return map {
		my $result = $who->[$_]->result(120);
		my ($state, $ended) = $result->{out} =~ /^state (\w+) (\w+)$/m;
		my ($took) = $result->{out} =~ /^Time: ([\d.]+) ms/m;
		[ $state, $result->{out} =~ s/^(?:Time:.*|state .*)\n?//mgr =~ s/\s+\z//r, $ended eq '00000' ? $ends[$_] : 'ROLLBACK', $took ];
	} 0 .. $#$who;
}

# Counts the results by their SQLSTATE.
sub states { my %count; $count{ $_->[0] }++ for @_; return \%count }

# Tests that no session was told anything but what is allowed.
sub only_states
{
	my ($results, $allowed, $name) = @_;
	my %count = %{ states(@$results) };
	my @told = map { "$_ ($count{$_})" } sort keys %count;
	ok(!(grep { !/^(?:$allowed)\z/ } keys %count), $name) or diag("told: @told");
	note("$name: @told");
	return;
}

sub jobs { my ($key) = @_; return $pg->sql("SELECT count(*) FROM llmq.job WHERE idempotency_key = '$key'") }

sub submit_sql { my ($key, $prompt) = @_; return "SELECT replayed FROM llmq.submit('$prompt', '$key')" }

# -- one key, 100 sessions ------------------------------------------------------------------

# Some commit and some roll back; each fifth asks for something else under the same key.
my %mix = (
	'all at once, all commit'         => {},
	'slow, commit or roll back'       => { open => sub { rand 0.04 }, end => sub { $_[0] % 2 ? 'COMMIT' : 'ROLLBACK' } },
	'slower than the wait'            => { open => sub { 0.08 }, end => sub { $_[0] % 2 ? 'COMMIT' : 'ROLLBACK' } },
	'most roll back'                  => { open => sub { rand 0.01 }, end => sub { $_[0] % 10 ? 'ROLLBACK' : 'COMMIT' } },
	'REPEATABLE READ'                 => { open => sub { rand 0.02 }, isolation => 'REPEATABLE READ' },
	'SERIALIZABLE'                    => { open => sub { rand 0.02 }, isolation => 'SERIALIZABLE' });
for my $name (sort keys %mix)
{
	my $key = 'race-' . ++$round;
	my $sql = sub { submit_sql($key, $_[0] % 5 ? 'one' : 'other') };
	my @results = race(\@sessions, $sql, %{ $mix{$name} });
	only_states(\@results, '00000|PT409|PT422' . ($mix{$name}{isolation} ? '|40001' : ''), "$name: new, replayed, PT409 or PT422, nothing else");
	my $made = grep { $_->[1] eq 'f' && $_->[2] eq 'COMMIT' } @results;
	cmp_ok($made, '<=', 1, "$name: one session at most made the job");
	is(jobs($key), $made, "$name: and it is there");

	# Whoever was refused for the time being tries again, as clients do.
	wait_for(sub { @results = race(\@sessions, $sql); !grep { $_->[0] eq 'PT409' } @results }, 60, 'nobody is refused');
	is(jobs($key), 1, "$name: in the end there is one job");
	my $prompt = $pg->sql("SELECT prompt FROM llmq.job WHERE idempotency_key = '$key'");
	my $wrong = grep { my $same = ($_ % 5 ? 'one' : 'other') eq $prompt; $results[$_][0] ne ($same ? '00000' : 'PT422') } 0 .. $#results;
	is($wrong, 0, "$name: the same request is replayed, another refused");
}

# -- how long anyone waits --------------------------------------------------------------------

# While one transaction stays open, everybody else is told after the time that was allowed.
my $holder = $pg->session;
$holder->query("BEGIN; " . submit_sql('held', 'one'));
my @told = race(\@sessions, sub { submit_sql('held', 'one') });
only_states(\@told, 'PT409', 'an open transaction is a conflict for everybody');
my ($fastest, $slowest) = (sort { $a <=> $b } map { $_->[3] } @told)[0, -1];
cmp_ok($fastest, '>=', 50, 'after 50 ms');
cmp_ok($slowest, '<', 5000, 'and not much more');

# Holders in turn: each one is waited for anew, and a waiter gets what a holder lets go.
my @queue = map { $pg->session } 1 .. 3;
$_->query('SET llmq.key_wait = 500') for @queue;
my $second = $queue[0];
$second->query('BEGIN');
$second->send(submit_sql('held', 'two'));
wait_for(sub { $pg->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}) }, 10, 'the second waits');
$holder->query('ROLLBACK');
is($second->result->{out}, 'f', 'a waiter has the key when its holder rolls back, for its own request');
$queue[1]->query('BEGIN');
$queue[1]->send(submit_sql('held', 'three'));
wait_for(sub { $pg->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}) }, 10, 'the third waits');
$second->query('COMMIT');
is($queue[1]->result->{sqlstate}, 'PT422', 'the next one hears of that request when it commits');
$queue[1]->query('ROLLBACK');
my $started = now();
$holder->query('BEGIN; ' . submit_sql('held again', 'one'));
is($queue[2]->query(submit_sql('held again', 'one'))->{sqlstate}, 'PT409', 'llmq.key_wait allows more time');
cmp_ok(now() - $started, '>=', 0.5, 'half a second at most');
is($queue[2]->query('SHOW lock_timeout')->{out}, '0', 'and lock_timeout is what it was');
$queue[2]->query("SET lock_timeout = '20ms'");
my $short = $queue[2]->query(submit_sql('held again', 'one'));
like($short->{err}, qr/within 20 ms/, 'a shorter lock_timeout of the user is kept');
$holder->query('ROLLBACK');

# A table lock is no key: the caller's own lock_timeout is for it.
$holder->query('BEGIN; LOCK TABLE llmq.job IN SHARE MODE');
is($queue[2]->query(submit_sql('table', 'one'))->{sqlstate}, '55P03', 'a locked table is not taken for a held key');
$holder->query('ROLLBACK');

# -- keys in crossed order --------------------------------------------------------------------

$_->query('SET llmq.key_wait = 500; BEGIN') for @sessions[0, 1];
$sessions[0]->query(submit_sql('cross-1', 'one'));
$sessions[1]->query(submit_sql('cross-2', 'one'));
$sessions[0]->send(submit_sql('cross-2', 'one'));
$sessions[1]->send(submit_sql('cross-1', 'one'));
my %crossed = map { $_->result->{sqlstate} => 1 } @sessions[0, 1];
ok($crossed{PT409}, 'transactions that want each other\'s keys are refused');
ok(!$crossed{'40P01'}, 'before anybody speaks of a deadlock');
$_->query('ROLLBACK; RESET llmq.key_wait') for @sessions[0, 1];

# Bulk submits take their keys in one order, whatever the order of the array.
my @crowd = @sessions[ 0 .. 19 ];
my $bulk = sub {
	my ($direction) = $_[0] % 2 ? 'ASC' : 'DESC';
	return q{SELECT count(*) FILTER (WHERE NOT replayed) FROM llmq.submit_many((SELECT jsonb_agg(jsonb_build_object(}
	  . qq{'prompt', 'x', 'idempotency_key', 'bulk-' || n) ORDER BY n $direction) FROM generate_series(1, 200) AS n))};
};
my @bulk = race(\@crowd, $bulk, open => sub { rand 0.02 }, end => sub { $_[0] % 4 ? 'COMMIT' : 'ROLLBACK' });
only_states(\@bulk, '00000|PT409', 'bulk submits of the same keys: new, replayed or PT409, nothing else');
wait_for(sub { @bulk = race(\@crowd, $bulk); !grep { $_->[0] eq 'PT409' } @bulk }, 60, 'nobody is refused');
is($pg->sql(q{SELECT count(*) FROM llmq.job WHERE idempotency_key LIKE 'bulk-%'}), 200, 'in the end each key is one job');
$holder->query('BEGIN; ' . submit_sql('bulk-new', 'x'));
like($sessions[0]->query(q{SELECT llmq.submit_many('[{"prompt": "x", "idempotency_key": "free"}, {"prompt": "x", "idempotency_key": "bulk-new"}]')})->{err},
	qr/PT409: element 1: another transaction holds/, 'a bulk submit says which element is held');
$holder->query('ROLLBACK');

# -- the caller's own work ----------------------------------------------------------------------

sub begin_sql { my ($key, $fingerprint) = @_; return "SELECT outcome FROM llmq.idempotency_begin('s', '$key', '$fingerprint')" }

for my $name (sort grep { !$mix{$_}{isolation} } keys %mix)
{
	my $key = 'begin-' . ++$round;
	my $sql = sub { begin_sql($key, $_[0] % 5 ? 'one' : 'other') };
	my @results = race(\@sessions, $sql, %{ $mix{$name} });
	only_states(\@results, '00000|PT409|PT422', "idempotency_begin, $name: started, PT409 or PT422, nothing else");
	my $made = grep { $_->[1] eq 'started' && $_->[2] eq 'COMMIT' } @results;
	cmp_ok($made, '<=', 1, "$name: one session at most started");
	is($pg->sql("SELECT count(*) FROM llmq.idempotency WHERE idempotency_key = '$key'"), $made, "$name: and its marker is there");
}

# Begin, work and finish in one transaction: whoever waits for it gets the response.
$_->query('SET llmq.key_wait = 500') for @sessions;
$holder->query(q{BEGIN; WITH b AS (SELECT token FROM llmq.idempotency_begin('s', 'whole', 'f')) }
	  . q{SELECT llmq.idempotency_finish('s', 'whole', token, 200, '"done"') FROM b});
$_->send(q{SELECT outcome || ' ' || response FROM llmq.idempotency_begin('s', 'whole', 'f')}) for @sessions[ 0 .. 9 ];
wait_for(sub { $pg->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted}) == 10 }, 10, 'ten wait');
$holder->query('COMMIT');
my %whole = map { $_->result->{out} => 1 } @sessions[ 0 .. 9 ];
is(join(', ', keys %whole), 'replayed "done"', 'the response of a transaction that was waited for is replayed to all');
$_->query('RESET llmq.key_wait') for @sessions;

# A lock that expires is taken over by one, and then it is lost for the first.
my $slow = $pg->sql(q{SELECT token FROM llmq.idempotency_begin('s', 'slow', 'f', '0.2 s')});
wait_for(sub { $pg->sql(q{SELECT expires_at < clock_timestamp() FROM llmq.idempotency WHERE idempotency_key = 'slow'}) eq 't' }, 10, 'the lock has expired');
my @over = race(\@sessions, sub { q{SELECT token FROM llmq.idempotency_begin('s', 'slow', 'f', '1 min')} });
only_states(\@over, '00000|PT409', 'an expired lock: taken over or PT409, nothing else');
my @winners = map { $_->[1] } grep { $_->[0] eq '00000' } @over;
is(scalar @winners, 1, 'one takes it over');
my $row = q{SELECT md5(k::text) FROM llmq.idempotency AS k WHERE idempotency_key = 'slow'};
my $before = $pg->sql($row);
is($pg->sql("SELECT llmq.idempotency_finish('s', 'slow', '$slow', 200, '1')"), 'f', 'who lost the lock cannot finish');
is($pg->sql("SELECT llmq.idempotency_release('s', 'slow', '$slow')"), 'f', 'nor release');
is($pg->sql($row), $before, 'and has changed nothing');
is($pg->sql("SELECT llmq.idempotency_finish('s', 'slow', '$winners[0]', 200, '2')"), 't', 'the new holder finishes');
is($pg->sql(q{SELECT response FROM llmq.idempotency_begin('s', 'slow', 'f')}), 2, 'and its response is the one');

# While a takeover is not committed, the first holder is not kept waiting for long.
$slow = $pg->sql(q{SELECT token FROM llmq.idempotency_begin('s', 'slower', 'f', '0.1 s')});
wait_for(sub { $pg->sql(q{SELECT expires_at < clock_timestamp() FROM llmq.idempotency WHERE idempotency_key = 'slower'}) eq 't' }, 10, 'the lock has expired');
$holder->query('BEGIN; ' . begin_sql('slower', 'f'));
is($pg->query("SELECT llmq.idempotency_finish('s', 'slower', '$slow', 200, '1')")->{sqlstate}, 'PT409', 'finish during a takeover is a conflict');
$holder->query('ROLLBACK');
is($pg->sql("SELECT llmq.idempotency_finish('s', 'slower', '$slow', 200, '1')"), 't', 'and works when that is rolled back');

# -- 100,000 keys in one transaction --------------------------------------------------------------

my $big = $pg->session;
$big->query('BEGIN');
my $one_by_one = $big->query(q{SELECT count(llmq.submit('x', 'big-' || n)) FROM generate_series(1, 100000) AS n}, 120);
is($one_by_one->{out}, 100_000, '100,000 jobs in one transaction') or diag($one_by_one->{err});
my $locks = $big->query(q{SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()})->{out};
cmp_ok($locks, '<', 50, 'take no lock each');
is($pg->query(submit_sql('big-99999', 'x'))->{sqlstate}, 'PT409', 'each of them is held');
is($pg->sql(submit_sql('small', 'x')), 'f', 'and no other');
my $begun = $big->query(q{SELECT count(llmq.idempotency_begin('s', 'big-' || n, 'f')) FROM generate_series(1, 100000) AS n}, 120);
is($begun->{out}, 100_000, '100,000 keys of idempotency_begin too') or diag($begun->{err});
$big->query('ROLLBACK');
is($pg->sql(submit_sql('big-99999', 'another')), 'f', 'rolled back, they never were');

# -- what the server saw ------------------------------------------------------------------------

my $log = $pg->log_text;
unlike($log, qr/duplicate key value/, 'no unique violation in the log');
unlike($log, qr/deadlock detected/, 'no deadlock in the log');

finish();
