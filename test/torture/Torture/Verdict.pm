# Torture::Verdict - what came of it, when all is quiet: the clients' ledgers, the provider's log and
# the tables must tell one story.
#
# Each question is a query that names what is not as it must be; the answer must be no rows.

package Torture::Verdict;

use strict;
use warnings;

use LlmqTest;
use Torture::Job;
use Torture::Ledger;

use constant QUIET_LIMIT => 120;	# seconds for all jobs to become final
use constant MAX_SHOWN => 5;		# of each question
use constant UNKNOWN => -1;			# the answer of a receiver that was killed before it had noted one

my $jobs = q{(SELECT j.job_id, j.idempotency_key AS key, j.metadata ->> 'kind' AS kind, j.outbox, j.on_complete, j.after, s.state,
	s.error_class, s.deliveries FROM llmq.job AS j JOIN llmq.job_status AS s USING (job_id))};

# What a delivery may cost: the attempts that it recorded, or, when its worker was lost, as many as its policy allows.
my $allowed = q{(SELECT job_id, sum(CASE WHEN lost THEN greatest(4, attempts) ELSE attempts END) AS calls, sum(answered) AS answered
	FROM (SELECT job_id, delivery, bool_or(attempt = 0) AS lost, count(*) FILTER (WHERE attempt > 0) AS attempts,
		count(*) FILTER (WHERE http_status IS NOT NULL) AS answered FROM llmq.attempt GROUP BY 1, 2) AS d GROUP BY 1)};

# (kind, question, query)
my @questions = (
	[ lost => 'a committed submit has a job', q{SELECT key FROM torture.ledger WHERE outcome = 'committed'
		AND NOT EXISTS (SELECT FROM llmq.job WHERE idempotency_key = key)} ],
	[ lost => 'a job is final', "SELECT key, state FROM $jobs AS j WHERE coalesce(state, 'nowhere') NOT IN ('succeeded', 'dead', 'cancelled')" ],
	[ lost => 'a succeeded job has its result and its messages', "SELECT key FROM $jobs AS j
		WHERE state = 'succeeded' AND (SELECT count(*) FROM llmq.outbox AS o WHERE o.job_id = j.job_id AND topic <> 'sad')
			< (SELECT count(*) FROM jsonb_array_elements(j.outbox) AS e WHERE e ->> 'topic' <> 'sad')" ],
	[ lost => 'a death has its message', "SELECT key, d.deaths FROM $jobs AS j JOIN llmq.dead_job AS d USING (job_id)
		WHERE outbox @> '[{\"topic\": \"sad\"}]' AND (SELECT count(*) FROM llmq.outbox AS o WHERE o.job_id = j.job_id AND topic = 'sad') < d.deaths" ],
	[ lost => 'on_complete has run', "SELECT key FROM $jobs AS j WHERE state = 'succeeded' AND on_complete IS NOT NULL
		AND NOT EXISTS (SELECT FROM public.effect AS e WHERE e.job_id = j.job_id)" ],
	[ lost => 'work under a key that was finished is there', 'SELECT key FROM torture.once EXCEPT SELECT key FROM public.once' ],

	[ lost => 'every message has been sent, and was received', "SELECT m.id, m.dedupe_key, d.attempts, d.last_error FROM llmq.message AS m
		LEFT JOIN llmq.message_done AS d USING (id) WHERE d.sent_at IS NULL
			OR NOT EXISTS (SELECT FROM torture.receipt AS r WHERE r.message = m.id AND r.key = m.dedupe_key AND r.status IN (200, @{[ UNKNOWN ]}))" ],

	[ twice => 'a message has one id at its receiver, however often it comes, and an id one message', 'SELECT key, count(DISTINCT message)
		FROM torture.receipt GROUP BY 1 HAVING count(DISTINCT message) > 1 UNION ALL SELECT message::text, count(DISTINCT key)
		FROM torture.receipt GROUP BY 1 HAVING count(DISTINCT key) > 1' ],
	[ twice => 'a job has no message too many', "SELECT key FROM $jobs AS j
		WHERE (SELECT count(*) FROM llmq.outbox AS o WHERE o.job_id = j.job_id AND topic <> 'sad')
			> (SELECT count(*) FROM jsonb_array_elements(j.outbox) AS e WHERE e ->> 'topic' <> 'sad' AND state = 'succeeded')
		OR (SELECT count(*) FROM llmq.outbox AS o WHERE o.job_id = j.job_id AND topic = 'sad')
			> (SELECT deaths FROM llmq.dead_job AS d WHERE d.job_id = j.job_id)" ],
	[ twice => 'on_complete has run once, and only for a result', "SELECT e.job_id, count(*) FROM public.effect AS e
		LEFT JOIN llmq.result AS r USING (job_id) GROUP BY 1 HAVING count(*) > 1 OR count(r.job_id) = 0" ],
	[ twice => 'work under a key is done once', 'SELECT key, count(*) FROM public.once GROUP BY 1 HAVING count(*) > 1' ],
	[ twice => 'the provider was called no more often than attempts and crashes account for', "SELECT j.key, c.calls, a.calls
		FROM $jobs AS j JOIN torture.call AS c USING (key) LEFT JOIN $allowed AS a USING (job_id)
		WHERE c.calls > coalesce(a.calls, 0)" ],

	[ wrong => 'a submit that was rolled back has left nothing', q{SELECT key FROM torture.ledger WHERE outcome = 'aborted'
		AND EXISTS (SELECT FROM llmq.job WHERE idempotency_key = key)} ],
	[ wrong => 'a job is there exactly if what was committed with it is', 'SELECT key, idempotency_key FROM public.mirror
		FULL JOIN llmq.job ON key = idempotency_key WHERE key IS NULL OR idempotency_key IS NULL' ],
	[ wrong => 'what is recorded as answered was called', "SELECT j.key, c.calls, a.answered FROM $jobs AS j JOIN $allowed AS a USING (job_id)
		LEFT JOIN torture.call AS c USING (key) WHERE a.answered > coalesce(c.calls, 0)" ],
	[ wrong => 'a job ends as the provider had it end', "SELECT key, kind, state, error_class FROM $jobs AS j
		WHERE (state = 'succeeded' AND kind = 'refused')
			OR (state = 'dead' AND NOT (kind = 'refused' AND error_class = 'bad_request')
				AND NOT (after <> '{}' AND error_class = 'dependency_failed'))" ],
	[ wrong => 'a job that comes after another has succeeded only if that has', "SELECT c.key, p.key, p.state
		FROM $jobs AS c JOIN $jobs AS p ON p.job_id = c.after[1]
		WHERE (c.state = 'succeeded') > (p.state = 'succeeded') OR (c.error_class = 'dependency_failed' AND p.state = 'succeeded')" ],
	[ wrong => 'a job is cancelled if that was granted, and only if it was asked for', "SELECT key, state, how FROM $jobs AS j
		LEFT JOIN torture.cancel AS c USING (key) WHERE (state = 'cancelled' AND how IS NULL) OR (state <> 'cancelled' AND how = 'granted')" ],
	[ wrong => 'llmq.check() is empty', 'SELECT invariant, job_id, detail FROM llmq.check()' ],
	[ wrong => 'nothing happened to a client or an administrator that must not', 'SELECT what FROM torture.wrong' ]);

my @figures = (
	[ 'jobs submitted', 'SELECT count(*) FROM llmq.job' ],
	[ 'succeeded', 'SELECT count(*) FROM llmq.result' ],
	[ 'dead', 'SELECT count(*) FROM llmq.dead_job' ],
	[ 'cancelled', 'SELECT count(*) FROM llmq.cancelled_job' ],
	[ 'commits whose outcome the client never heard of', "SELECT count(*) FROM torture.ledger WHERE outcome = 'unknown'" ],
	[ 'of these, there', "SELECT count(*) FROM torture.ledger JOIN llmq.job ON key = idempotency_key WHERE outcome = 'unknown'" ],
	[ 'calls at the provider', 'SELECT sum(calls) FROM torture.call' ],
	[ 'outbox messages', 'SELECT count(*) FROM llmq.message' ],
	[ 'webhooks received', 'SELECT count(*) FROM torture.receipt' ],
	[ 'messages that were answered well more than once', 'SELECT count(*) FROM (SELECT message FROM torture.receipt WHERE status = 200 GROUP BY 1 HAVING count(*) > 1) AS t' ],
	[ 'effects of on_complete', 'SELECT count(*) FROM public.effect' ],
	[ 'deliveries whose worker was lost', 'SELECT count(*) FROM llmq.attempt WHERE attempt = 0' ],
	[ 'attempts whose billing is unknown', "SELECT count(*) FROM llmq.attempt WHERE billing = 'unknown'" ],
	[ 'jobs that may have been paid twice', "SELECT count(*) FROM (SELECT job_id FROM llmq.attempt WHERE billing <> 'none' GROUP BY 1 HAVING count(*) > 1) AS t" ]);

# Waits until every job is final and every message sent; what is not then is lost, and the questions name it.
sub await_quiet
{
	my ($pg) = @_;
	my $busy = q{SELECT (SELECT count(*) FROM llmq.job_place WHERE place NOT IN ('result', 'dead_job', 'cancelled_job'))
		+ (SELECT count(*) FROM llmq.message) - (SELECT count(*) FROM llmq.message_done)};
	return eval { wait_for(sub { $pg->sql($busy) eq '0' }, QUIET_LIMIT, 'all jobs are final, and all messages are sent') };
}

# Brings the witnesses into the database, beside the tables.
sub load
{
	my ($pg, $dir, $provider_log) = @_;
	my $ledger = Torture::Ledger::read_all($dir);
	$pg->sql('CREATE SCHEMA torture;
		CREATE TABLE torture.ledger (key text PRIMARY KEY, outcome text);
		CREATE TABLE torture.cancel (key text PRIMARY KEY, how text);
		CREATE TABLE torture.once (key text);
		CREATE TABLE torture.call (key text PRIMARY KEY, calls bigint);
		CREATE TABLE torture.receipt (key text, message bigint, status int);
		CREATE TABLE torture.wrong (what text)');
	copy($pg, "$dir/load", 'torture.ledger', map { "$_\t$ledger->{keys}{$_}" } keys %{ $ledger->{keys} });
	copy($pg, "$dir/load", 'torture.cancel', map { "$_\t$ledger->{cancels}{$_}" } keys %{ $ledger->{cancels} });
	copy($pg, "$dir/load", 'torture.once', keys %{ $ledger->{once} });
	my ($calls, $receipts) = read_calls($provider_log);
	copy($pg, "$dir/load", 'torture.call', map { "$_\t$calls->{$_}" } keys %{$calls});
	copy($pg, "$dir/load", 'torture.receipt', @{$receipts});
	copy($pg, "$dir/load", 'torture.wrong', map { s/\\/\\\\/gr } @{ $ledger->{wrong} });
	$pg->sql('ANALYZE');
	return;
}

sub copy
{
	my ($pg, $path, $table, @lines) = @_;
	open(my $file, '>', $path) or die "$path: $!\n";
	print {$file} "$_\n" for @lines;
	close $file;
	$pg->sql("COPY $table FROM '$path'");
	return;
}

# Reads the provider's log.  Returns how often each job was called, and a line for each webhook: its
# Idempotency-Key, its id, and the status that it was answered with (0: none).  Requests are numbered; a
# provider that was killed begins anew, and may have answered what it has not noted.
sub read_calls
{
	my ($log) = @_;
	my (%calls, @receipts, %webhook);
	open(my $file, '<', $log) or die "$log: $!\n";
	while (my $line = <$file>)
	{
		my ($seq) = $line =~ /"seq": (\d+)/ or next;
		if ($seq == 1 && $line =~ /^\{"event": "request"/)
		{
			$receipts[$_][2] = UNKNOWN for values %webhook;
			%webhook = ();
		}
		if ($line =~ /^\{"event": "answer"/)
		{
			my $receipt = delete $webhook{$seq};
			$receipts[$receipt][2] = $1 if defined $receipt && $line =~ /"how": "finished", "status": (\d+)/;
		}
		elsif ($line =~ m{^\{"event": "request".* "path": "([^"]+)", "job": "([^"]+)"} && $2 ne 'stranger')
		{
			my ($path, $name) = ($1, $2);
			$calls{$name}++ if $path !~ m{^/hook/};
			next unless $path =~ m{^/hook/} && $line =~ /"webhook-id": "(\d+)"/;
			$webhook{$seq} = @receipts;
			push @receipts, [ $name, $1, 0 ];
		}
	}
	return (\%calls, [ map { join "\t", @{$_} } @receipts ]);
}

# Asks all questions.  Returns a list of {kind, question, count, shown}.
sub ask
{
	my ($pg) = @_;
	return map {
		my ($kind, $question, $query) = @{$_};
		my $shown = $pg->sql("SELECT count(*) OVER (), t.* FROM ($query) AS t LIMIT @{[ MAX_SHOWN ]}");
		{ kind => $kind, question => $question, count => $shown =~ /^(\d+)/ ? $1 : 0, shown => [ split /\n/, $shown ] };
	} @questions;
}

# Has some more jobs done, and makes each look as if another thing had gone wrong, one for every question.
sub spoil
{
	my ($pg) = @_;
	my $next = 0;
	my $job = sub {
		my ($kind) = @_;
		my $key = "'spoiled." . ++$next . q{'};
		my $id = $pg->sql(qq{SET ROLE client; SELECT job_id FROM llmq.submit('Go. [kind:$kind] [job:' || $key || ']', $key, queue => 'torture',
			metadata => '{"kind": "$kind"}', on_complete => 'public.note_effect', outbox => '[{"topic": "mail"}, {"topic": "sad", "on": "dead"}]');
			RESET ROLE; INSERT INTO public.mirror VALUES ($key); INSERT INTO torture.ledger VALUES ($key, 'committed')});
		$pg->final_state($id);
		$pg->sql("INSERT INTO torture.call SELECT $key, count(*) FROM llmq.attempt WHERE job_id = '$id'");
		return ($key, "'$id'");
	};
	my @plain = map { [ $job->('plain') ] } 1 .. 12;
	my ($refused, $refused_id) = $job->('refused');
	my ($parent, $parent_id) = $job->('refused');
	my ($key, $id) = (sub { $plain[ $_[0] ][0] }, sub { $plain[ $_[0] ][1] });
	$pg->sql($_) for (
		"INSERT INTO torture.ledger VALUES ('gone', 'committed')",
		"UPDATE torture.ledger SET outcome = 'aborted' WHERE key = @{[ $key->(0) ]}",
		"DELETE FROM public.mirror WHERE key = @{[ $key->(1) ]}",
		"DELETE FROM llmq.result WHERE job_id = @{[ $id->(2) ]}",
		"DELETE FROM llmq.message WHERE topic = 'mail' AND job_id = @{[ $id->(3) ]}",
		"DELETE FROM llmq.message WHERE topic = 'sad' AND job_id = $refused_id",
		"INSERT INTO llmq.message (tenant, topic, dedupe_key, job_id) VALUES ('client', 'mail', 'another', @{[ $id->(4) ]})",
		"INSERT INTO torture.receipt VALUES ('one', 1, 200), ('one', 2, 200)",
		"DELETE FROM public.effect WHERE job_id = @{[ $id->(5) ]}",
		"INSERT INTO public.effect SELECT * FROM public.effect WHERE job_id = @{[ $id->(6) ]}",
		"INSERT INTO torture.once VALUES ('never done')",
		"INSERT INTO public.once VALUES ('twice'), ('twice')",
		"UPDATE torture.call SET calls = calls + 10 WHERE key = @{[ $key->(7) ]}",
		"UPDATE torture.call SET calls = 0 WHERE key = @{[ $key->(8) ]}",
		qq{UPDATE llmq.job SET metadata = '{"kind": "refused"}' WHERE job_id = @{[ $id->(9) ]}},
		"UPDATE llmq.job SET after = ARRAY[$parent_id]::uuid[] WHERE job_id = @{[ $id->(10) ]}",
		"INSERT INTO torture.cancel VALUES (@{[ $key->(11) ]}, 'granted')",
		"INSERT INTO torture.wrong VALUES ('said a client')");
	return;
}

# Returns figures as (name, value) pairs.
sub figures
{
	my ($pg) = @_;
	return map { [ $_->[0], $pg->sql($_->[1]) ] } @figures;
}

1;
