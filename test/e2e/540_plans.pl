# Plans: whatever the statistics say, a worker reads the tables of the queue by their indexes, and
# sorts nothing.  auto_explain shows each statement of a session that plays worker.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";

use LlmqTest;
use Test::More;

# Tables that grow with the number of jobs.  A scan of an index without a condition reads all of it,
# but some indexes hold only what is to be done at once.
my $grows = qr/(?:job|ready|deferred|blocked|dependency|lease|result|attempt|dead_job|cancelled_job|message|message_pending|message_deferred|message_lease|message_done|answer)/;
my $short_index = qr/blocked_fresh_idx|answer_due_at_idx/;

my $MANY = 100_000;

my $pg = start_cluster(conf => { shared_preload_libraries => 'llmq', 'llmq.enabled' => 'off' });

try_with('fresh_tables', 'tables that were never analysed', sub { });
try_with('empty', 'statistics of empty tables', sub { $pg->sql('ANALYZE') });
try_with('emptied', 'statistics of full tables, which are empty now', sub {
	stand_about();
	$pg->sql('ANALYZE');
	$pg->sql("DELETE FROM llmq.$_") for qw(ready deferred dead_job lease result attempt message message_pending message_deferred message_lease message_done job);
});
try_with('filled', 'statistics of empty tables, which are full now', sub { $pg->sql('ANALYZE'); stand_about() });
finish();

# Runs each operation of a worker in a session of its own, under statistics that $prepare makes.
sub try_with
{
	my ($db, $name, $prepare) = @_;
	$pg->create_database($db, extension => 1);
	$pg->sql("ALTER DATABASE $db SET client_min_messages = error");
	$pg->disconnect($db);
	$pg->sql("INSERT INTO llmq.endpoint (name, api, url, model) VALUES ('main', 'openai_chat', 'http://127.0.0.1:9/v1', 'stand-in')");
	# Nobody else's ANALYZE may come between.
	$pg->sql("ALTER TABLE llmq.$_ SET (autovacuum_enabled = off)") for qw(job ready deferred lease result attempt message message_pending message_deferred message_lease message_done dead_job);
	submit_some();
	$prepare->();
	submit_some();

	my $session = $pg->session;
	$session->query("LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;
		SET auto_explain.log_analyze = on; SET auto_explain.log_timing = off; SET jit = off");
	my $own = $session->query(q{SELECT worker_id FROM llmq.worker_hello(3, 'plans', 'program', pg_backend_pid(), NULL)})->{out};
	my $poll = "SELECT string_agg(seq::text, ',') FROM (SELECT seq FROM llmq.worker_poll($own, 0, 20,";
	my ($seqs, @plans) = plans($session, "$poll NULL, NULL, NULL) WHERE seq IS NOT NULL) AS p");
	judge("$name: a poll", 1, @plans);
	(undef, @plans) = plans($session, "$poll 'x', NULL, -1, '')) AS p");
	judge("$name: a poll that looks at everything", 1, @plans);
	(my $jobs, @plans) = plans($session, "SELECT json_agg(json_build_object('job_id', job_id, 'delivery', delivery))
		FROM llmq.worker_claim($own, '{$seqs}')");
	judge("$name: a claim", 1, @plans);
	(my $verdicts, @plans) = plans($session, "SELECT string_agg(DISTINCT verdict, ' ') FROM llmq.worker_settle($own, (
		SELECT jsonb_agg(e.value || CASE WHEN e.ordinality % 3 = 0
			THEN '{\"outcome\": \"retry\", \"counted\": true, \"delay\": 60000000, \"error_class\": \"server_error\", \"attempts\": []}'
			ELSE '{\"outcome\": \"succeeded\", \"text\": \"fine\", \"endpoint\": \"main\", \"response\": \"{}\", \"attempts\": [{\"attempt\": 1,
				\"started_at\": 1, \"duration\": 1, \"outcome\": \"success\", \"billing\": \"billed\"}]}'::jsonb END)
		FROM jsonb_array_elements('$jobs') WITH ORDINALITY AS e))");
	is($verdicts, 'settled', "$name: what was claimed is settled");
	judge("$name: a settle", 0, @plans);
	try_messages($name, $session, $own);
	my (undef, @bad) = plans($session, 'SELECT * FROM llmq.ready ORDER BY queue LIMIT 1');
	is(scalar(complaints(1, @bad)), 2, "$name: a sequential scan and a sort would be seen");
	$session->disconnect;
	# What was put there by hand is no state that llmq.check() could like.
	$pg->drop_database($db);
	return;
}

# The same for outbox messages.
sub try_messages
{
	my ($name, $session, $own) = @_;
	my $look = sub { return "SELECT control -> 'messages' ->> 'tip' FROM llmq.worker_poll($own, 1000000, 20, $_[0]) WHERE control IS NOT NULL" };
	my ($tip, @plans) = plans($session, $look->('NULL, NULL, 0'));
	judge("$name: a look for messages", 1, @plans);
	(undef, @plans) = plans($session, $look->("'x', NULL, -1, ''"));
	judge("$name: a sweep for messages", 1, @plans);
	(my $entries, @plans) = plans($session, qq{SELECT json_agg(json_build_object('id', id, 'claimed_at', claimed_at, 'delay', 1000000,
		'outcome', CASE id % 3 WHEN 0 THEN 'sent' WHEN 1 THEN 'retry' ELSE 'return' END))
		FROM llmq.worker_claim_messages($own, '[{"topic": "t", "kind": "webhook", "after": 0, "max": 9, "exclusive": true}]')});
	judge("$name: a claim of messages", 1, @plans);
	(my $verdicts, @plans) = plans($session, "SELECT string_agg(DISTINCT verdict, ' ') FROM llmq.worker_settle_messages($own, '$entries')");
	is($verdicts, 'settled', "$name: the messages that were claimed are settled");
	judge("$name: a settle of messages", 1, @plans);
	$session->query('SET jit = on'); # a user's session
	(my $pulled, @plans) = plans($session, "SELECT string_agg(format('%s,%s', id, token), ' ') FROM llmq.outbox_claim('t', 1)");
	judge("$name: a pull of messages", 0, @plans);
	my ($id, $token) = split /,/, $pulled;
	(my $acknowledged, @plans) = plans($session, "SELECT llmq.outbox_ack($id, '$token')");
	is($acknowledged, 't', "$name: what was pulled is acknowledged");
	judge("$name: an acknowledgement", 1, @plans);
	(undef, @plans) = plans($session, "SELECT llmq.enqueue_outbox('t', NULL, 'twice') = llmq.enqueue_outbox('t', NULL, 'twice')");
	judge("$name: a message that is added twice", 1, @plans);
	(undef, @plans) = plans($session, 'SELECT llmq_internal.prune_messages(now() - interval \'30 days\', 1000)');
	judge("$name: retention of messages", 1, @plans);
	return;
}

# Jobs with all that a worker's statements can meet: messages, children, a time to come.
sub submit_some
{
	$pg->sql(q{SELECT count(*) FROM llmq.submit_many((
		SELECT jsonb_agg(jsonb_build_object('idempotency_key', gen_random_uuid(), 'prompt', 'x', 'outbox', '[{"topic": "t"}]'::jsonb,
			'run_at', CASE WHEN n % 5 = 0 THEN now() + interval '1 s' END))
		FROM generate_series(1, 30) AS n))});
	$pg->sql(q{SELECT job_id FROM llmq.submit(prompt => 'child', idempotency_key => gen_random_uuid()::text,
		after => ARRAY(SELECT job_id FROM llmq.ready ORDER BY seq DESC LIMIT 2))});
	return;
}

# Fills the tables, as jobs in every place would.
sub stand_about
{
	$pg->sql("INSERT INTO llmq.job (job_id, tenant, scope, idempotency_key, fingerprint, queue, priority, prompt, submitted_by, submitted_at)
		SELECT gen_random_uuid(), 'postgres', 'submit', n, '', 'default', 0, 'x', 'postgres', now() FROM generate_series(1, $MANY) AS n");
	my $placed = "SELECT job_id, 'default', 'postgres', 0";
	my $from = sub { my ($n) = @_; return "FROM llmq.job WHERE prompt = 'x' AND fingerprint = '' AND idempotency_key::int % 4 = $n" };
	$pg->sql("INSERT INTO llmq.ready (job_id, queue, tenant, priority) $placed " . $from->(0));
	$pg->sql("INSERT INTO llmq.deferred (job_id, queue, tenant, priority, due_at) $placed, now() + interval '1 day' " . $from->(1));
	$pg->sql("INSERT INTO llmq.dead_job (job_id, queue, tenant, priority, deliveries, counted, deaths, error_class)
		$placed, 1, 1, 1, 'bad_request' " . $from->(2));
	$pg->sql("INSERT INTO llmq.result (job_id, queue, deliveries, deaths, text) SELECT job_id, 'default', 1, 0, 'y' " . $from->(3));
	$pg->sql("INSERT INTO llmq.attempt (job_id, delivery, attempt, started_at, outcome, billing)
		SELECT job_id, 1, 1, now(), 'success', 'billed' FROM llmq.result");
	$pg->sql("INSERT INTO llmq.message (tenant, topic, dedupe_key, job_id)
		SELECT 'postgres', 'stands ' || n % 4, n, gen_random_uuid() FROM generate_series(1, $MANY) AS n");
	my $of = sub { my ($n) = @_; return "FROM llmq.message WHERE topic = 'stands $n'" };
	$pg->sql("INSERT INTO llmq.message_pending (id, topic) SELECT id, topic " . $of->(0));
	$pg->sql("INSERT INTO llmq.message_deferred (id, topic, attempts, next_attempt_at) SELECT id, topic, 1, now() + interval '1 day' " . $of->(1));
	$pg->sql("INSERT INTO llmq.message_lease (id, topic, token, attempts, claimed_at, expires_at)
		SELECT id, topic, gen_random_uuid(), 1, now(), now() + interval '1 day' " . $of->(2));
	$pg->sql("INSERT INTO llmq.message_done (id, attempts, sent_at) SELECT id, 1, now() " . $of->(3));
	return;
}

# Runs a statement, and returns what it printed and the plans of all that ran in it.
sub plans
{
	my ($session, $sql) = @_;
	my $before = $pg->log_size;
	my $result = $session->query($sql);
	$result->{sqlstate} eq '00000' or die "$sql\n$result->{err}\n";
	return ($result->{out}, grep { /plan:\n\tQuery Text:/ } split /^(?=\S)/m, $pg->log_text($before));
}

sub judge
{
	my ($name, $sorts_count, @plans) = @_;
	cmp_ok(scalar(@plans), '>', 1, "$name shows its plans");
	is(join('', complaints($sorts_count, @plans)), '', "$name scans nothing as a whole" . ($sorts_count ? ', and sorts nothing' : ''));
	return;
}

# What is wrong with plans, a line each.
sub complaints
{
	my ($sorts_count, @plans) = @_;
	my @found;
	for my $plan (@plans)
	{
		$plan =~ s/^\t.*\(never executed\)\n(?:\t +[A-Z][\w ]+: .*\n)*//mg;
		# The least of a column: 17 and later leave "IS NOT NULL" out.
		$plan =~ s/^(\t *(?:->  )?Limit  \(cost=\S+ rows=1 [^\n]*\n\t *->  )(?=Index)/$1First of /mg;
		my ($query) = $plan =~ /Query Text:\s*(.{1,120})/s;
		push @found, "$1 in: $query\n" while $plan =~ /(Seq Scan on $grows\b)/g;
		push @found, "$1 without a condition in: $query\n"
		  while $plan =~ /(?<!First of )(Index (?:Only )?Scan (?:Backward )?using (?!$short_index)\w+ on $grows\b)[^\n]*\n(?!\s*Index Cond)/g;
		push @found, "JIT in: $query\n" if $plan =~ /^\t *JIT:/m;
		# With what is below it: 16 and later sort for aggregates too, be it policies or verdicts.
		push @found, map { "Sort in: $query\n" } grep { $sorts_count && / on $grows\b/ }
		  $plan =~ /^(?=(\t *)(?:->  )?(?:Incremental )?Sort  \()(.*\n(?:\1 .*\n)*)/mg;
	}
	return @found;
}
