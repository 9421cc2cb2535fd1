# The demo that test/demo/run starts: scenes that show and prove what llmq does.  Verdicts on calls
# come from the log of the stand-in for the provider, which shares nothing with llmq.

use strict;
use warnings;

use Deliver;
use Digest::SHA;
use Encode ();
use List::Util qw(all max);
use LlmqTest;
use Show;

my $TASK = 'Two sentences that say what this is about, from the text';
my $TOPIC = 'email.summary';
my $CHARACTERS = 8000;		# of each document are sent: a real provider counts them
my $READERS = 3;
my @JSON = ([ 'Content-Type', 'application/json' ]);

# The real endpoint, if one was named.
my %real = (url => $ENV{LLMQ_DEMO_URL}, model => $ENV{LLMQ_DEMO_MODEL});
my $is_real = length($real{url} // '') > 0;
my $patience = $is_real ? 300 : 45;

my ($provider, $pg, @documents);

eval { play(); 1 } or stop_with($@);
stop_with(sprintf "%d of %d claims did not hold:\n%s", scalar failures(), scalar claims(), join '', map { "  - $_\n" } failures())
  if failures();
farewell();

sub play
{
	set_up();
	submit_documents();
	watch_documents();
	repeat_a_submission();
	meet_a_rate_limit();
	meet_a_refusal();
	look_at_everything();
	deliver($pg);
	return;
}

sub stop_with
{
	my ($reason) = @_;
	chomp $reason;
	print STDERR "\ndemo: FAILED: $reason\n";
	exit 1;
}

# -- the ground ---------------------------------------------------------------

sub set_up
{
	scene('The ground');
	$provider = start_provider();
	$pg = start_cluster(preload => 1, conf => { log_min_error_statement => 'panic', log_error_verbosity => 'terse' });
	$pg->create_database('demo', extension => 1);
	say_that('A throwaway PostgreSQL', $pg->sql('SHOW server_version') =~ s/ .*//r . ', reached by a socket in a temporary folder.');
	say_that("A stand-in for a model provider at", $provider->url, '(real HTTP; it answers with an extract of what it is sent).');
	say_that("The endpoint that you named at $real{url}, model $real{model}.") if $is_real;
	print "\n";
	configure();
	my $worker = wait_for(sub { $pg->row('SELECT name, pid FROM llmq.worker WHERE state = $$running$$') }, 20, 'a worker runs');
	must((grep { $_ == $worker->{pid} } $pg->workers), "CREATE EXTENSION llmq started worker $worker->{name} (process $worker->{pid})");
	return;
}

# One endpoint and one queue for the documents, and one of each for either kind of trouble.
sub configure
{
	my %endpoint = (summaries => { url => $provider->url, model => 'stand-in' },
		busy => { url => $provider->url, model => 'stand-in' }, strict => { url => $provider->url, model => 'stand-in' });
	my %queue = map { $_ => {} } keys %endpoint;
	if ($is_real)
	{
		$endpoint{summaries} = { %real, hand_over_secret() };
		$queue{summaries} = { call_timeout => '60 s', deadline => '3 min', max_in_flight => 4 };
	}
	my @statements = map { insert_of(endpoint => name => $_, api => 'openai_chat', %{ $endpoint{$_} }),
		insert_of(queue => name => $_, endpoints => "{$_}", %{ $queue{$_} }) } qw(summaries busy strict);
	show_sql(join "\n", @statements);
	$pg->sql($_) for @statements;
	return;
}

sub insert_of
{
	my ($table, %columns) = @_;
	my @names = sort { ($b eq 'name') - ($a eq 'name') || $a cmp $b } keys %columns;
	return "INSERT INTO llmq.$table (" . join(', ', @names) . ') VALUES ('
	  . join(', ', map { LlmqTest::Cluster::literal($columns{$_}) } @names) . ');';
}

# Puts the secret where the worker looks for it.  Returns the endpoint's column that names it.
sub hand_over_secret
{
	open(my $file, '<', $ENV{LLMQ_DEMO_SECRET_FILE}) or return ();
	local $/;
	$pg->secret(demo => <$file>);
	unlink $ENV{LLMQ_DEMO_SECRET_FILE};
	return (credential => 'demo');
}

# -- documents ----------------------------------------------------------------

# Returns the paths of texts that every Debian machine has, each content once.
sub find_documents
{
	my %seen;
	return grep { -f && !-l && is_text($_) && !$seen{ Digest::SHA->new(1)->addfile($_)->hexdigest }++ } glob '/usr/share/common-licenses/*';
}

# Tells whether a file holds more than a few lines of UTF-8.
sub is_text
{
	my ($path) = @_;
	open(my $file, '<:raw', $path) or return 0;
	local $/;
	my $bytes = <$file> // '';
	return length $bytes > 500 && eval { Encode::decode('UTF-8', $bytes, Encode::FB_CROAK); 1 };
}

sub load_documents
{
	my @paths = find_documents();
	@paths >= 5 or die "there are too few texts in /usr/share/common-licenses\n";
	$pg->sql('CREATE TABLE document (name text PRIMARY KEY, body text, reader text, job_id uuid)');
	for my $number (0 .. $#paths)
	{
		my $name = $paths[$number] =~ s{.*/}{}r;
		my $path = LlmqTest::Cluster::literal($paths[$number]);
		my $reader = 'reader' . ($number % $READERS + 1) . '@example.org';
		$pg->sql('INSERT INTO document VALUES (' . LlmqTest::Cluster::literal($name) . ", pg_read_file($path), '$reader')");
	}
	say_that(scalar(@paths) . ' texts of this machine are in a table of ours: document (name, body, reader, job_id).');
	print "\n";
	slow_down();
	return;
}

# Has the stand-in think for another time about each document: the longer the text, the longer.
sub slow_down
{
	my @names = map { $_->{name} } $pg->rows('SELECT name FROM document ORDER BY length(body)');
	$provider->script(map { { match => "the text of $names[$_]:\n", responses => [ { delay_ms => 300 + 100 * $_ } ] } } 0 .. $#names);
	return;
}

# Returns the arguments of submit for a row of document.
sub arguments
{
	my ($task) = @_;
	return qq{queue           => 'summaries',
    idempotency_key => 'summary of ' || name,
    prompt          => format(E'$task of %s:\\n\\n%s', name, left(body, $CHARACTERS)),
    outbox          => jsonb_build_array(jsonb_build_object(
        'topic',   '$TOPIC',
        'payload', jsonb_build_object('to', reader, 'subject', 'Summary of ' || name)))};
}

sub submit_documents
{
	scene('A job for each document, with an e-mail that is to go out when it has succeeded');
	load_documents();
	my $sql = "UPDATE document\nSET job_id = (llmq.submit(\n    " . arguments($TASK) . ")).job_id";
	show_sql("$sql;");
	$pg->sql($sql);
	@documents = $pg->rows('SELECT name, body, octet_length(body) AS bytes, reader, job_id FROM document ORDER BY name');
	show_table([qw(document bytes reader job_id)], map { [ @{$_}{qw(name bytes reader job_id)} ] } @documents);
	must(@documents && (all { $_->{job_id} } @documents), scalar(@documents) . ' jobs were queued in one transaction');
	return;
}

# Says which document is done as that happens.
sub watch_documents
{
	scene('The worker calls the model');
	my %done;
	my $done = sub {
		for my $row ($pg->rows("SELECT d.name, s.state, s.error_class, s.error_message, extract(epoch FROM s.finished_at - s.submitted_at) AS took
			FROM document AS d JOIN llmq.job_status AS s USING (job_id)
			WHERE s.state IN ('succeeded', 'dead', 'cancelled') ORDER BY s.finished_at, d.name"))
		{
			next if $done{ $row->{name} }++;
			say_that(sprintf '%6.2f s  %-9s  %s%s', @{$row}{qw(took state name)},
				$row->{error_class} ? "  $row->{error_class}: " . short($row->{error_message}, 60) : '');
		}
		return keys %done == @documents;
	};
	wait_for($done, $patience, 'all documents are summarised');
	print "\n";
	must(states('succeeded') == @documents, 'each document has its summary');
	failures() and die "the documents have no summaries, so there is nothing to go on with\n";
	return if $is_real;
	my @calls = map { calls_for($_) } @documents;
	must(@calls == @documents, 'the provider saw ' . @calls . ' calls: one for each, by its own log');
	my $most = max map { $_->{concurrent} } @calls;
	must($most > 1, "up to $most of them at once");
	return;
}

sub states
{
	my ($state) = @_;
	return $pg->sql("SELECT count(*) FROM document JOIN llmq.job_status USING (job_id) WHERE state = '$state'");
}

# Returns the stand-in's log of calls about one document.
sub calls_for
{
	my ($document) = @_;
	return grep { index($_->{user}, " of $document->{name}:\n") >= 0 } $provider->calls;
}

# Returns the number of calls about one document.
sub count_calls
{
	my ($document) = @_;
	return scalar(my @calls = calls_for($document)) unless $is_real;
	return $pg->sql("SELECT count(*) FROM llmq.attempt WHERE job_id = '$document->{job_id}'");
}

# -- the same key -------------------------------------------------------------

sub repeat_a_submission
{
	my $document = $documents[0];
	my $again = "SELECT s.* FROM document, llmq.submit(\n    %s) AS s\nWHERE name = '$document->{name}'";
	my $before = count_calls($document);

	scene('The same request again, under the same key');
	my $sql = sprintf $again, arguments($TASK);
	show_sql("$sql;");
	my $row = $pg->row($sql);
	show_table([qw(job_id state replayed)], [ $row->{job_id}, $row->{state}, $row->{replayed} ? 't' : 'f' ]);
	must($row->{job_id} eq $document->{job_id}, 'it is the same job');
	must($row->{replayed} && $row->{state} eq 'succeeded', 'it was replayed: nothing was enqueued');

	scene('Another request under that key');
	$sql = sprintf $again, arguments('One word that says what this is about, from the text');
	show_sql("$sql;");
	my $refused = $pg->query($sql);
	say_that($_ =~ s/^psql:\S+: //r) for grep { /^\S*\s*(ERROR|DETAIL|HINT):/ } split /\n/, $refused->{err};
	print "\n";
	must($refused->{sqlstate} eq 'PT422', 'it is refused with PT422', $refused->{sqlstate});
	$pg->sql('SELECT 1');
	must(count_calls($document) == $before, 'neither of the two made a call' . ($is_real ? ' (by llmq.attempt)' : ''));
	return;
}

# -- trouble ------------------------------------------------------------------

# Submits a job to a queue of the stand-in, and returns its id when it is final.
sub submit_and_wait
{
	my ($queue, $prompt, @responses) = @_;
	$provider->script({ match => $prompt, responses => \@responses });
	my $call = sprintf q{llmq.submit(
    queue           => '%s',
    idempotency_key => '%s 1',
    prompt          => '%s',
    outbox          => '[{"topic": "%s", "payload": {"to": "reader1@example.org", "subject": "%s"}}]')},
	  $queue, $queue, $prompt, $TOPIC, $prompt;
	show_sql("SELECT * FROM $call;");
	my $job = $pg->sql("SELECT job_id FROM $call");
	show_sql("CALL llmq.wait('$job');");
	$pg->sql("CALL llmq.wait('$job', '45 s')");
	return $job;
}

sub meet_a_rate_limit
{
	scene('A provider that is busy: two answers of 429, each with Retry-After: 1');
	my $busy = { status => 429, headers => [ [ 'Retry-After', '1' ], @JSON ],
		body => '{"error": {"message": "Rate limit reached for requests", "type": "requests", "code": "rate_limit_exceeded"}}' };
	my $prompt = 'A haiku about patience.';
	my $job = submit_and_wait(busy => $prompt, $busy, $busy, { text => "The queue does not sleep.\nIt waits as long as it must.\nThen it asks again." });
	my @attempts = $pg->rows("SELECT attempt, extract(epoch FROM started_at - min(started_at) OVER ()) AS at, http_status,
		outcome, error_class, retry_after, billing FROM llmq.attempt WHERE job_id = '$job' ORDER BY delivery, attempt");
	show_table([qw(attempt began http_status outcome error_class retry_after billing)],
		map { [ $_->{attempt}, sprintf('%.2f s', $_->{at}), @{$_}{qw(http_status outcome error_class retry_after billing)} ] } @attempts);
	my $status = $pg->row("SELECT state, text FROM llmq.job_status WHERE job_id = '$job'");
	say_that($_) for split /\n/, $status->{text} // '';
	print "\n";
	must($status->{state} eq 'succeeded', 'the job succeeded', $status->{state});
	my @calls = grep { $_->{user} eq $prompt } $provider->calls;
	must(@calls == 3, 'with the third call, by the log of the provider', scalar(@calls) . ' calls');
	# From request to request: the log learns of an answer's end a moment after the client may have it.
	my @pauses = map { $calls[$_]{start} - $calls[ $_ - 1 ]{start} } 1 .. $#calls;
	must((all { $_ >= 1 } @pauses), 'none came sooner than the provider had asked for', join ', ', map { sprintf '%.6f s', $_ } @pauses);
	must(@attempts == @calls && (all { $_->{retry_after} eq '00:00:01' } @attempts[ 0, 1 ]), 'every call is recorded, with what the provider wished');
	return;
}

sub meet_a_refusal
{
	scene('A request that the model refuses with 400');
	my $prompt = 'Something that cannot be asked.';
	my $job = submit_and_wait(strict => $prompt, { status => 400, headers => [@JSON],
		body => '{"error": {"message": "This model does not take such a question", "type": "invalid_request_error", "code": null}}' });
	my @dead = $pg->rows("SELECT error_class, error_message, deliveries FROM llmq.dead_letter WHERE job_id = '$job'");
	show_sql("SELECT error_class, error_message, deliveries FROM llmq.dead_letter;");
	show_table([qw(error_class error_message deliveries)], map { [ @{$_}{qw(error_class error_message deliveries)} ] } @dead);
	must(@dead == 1 && $dead[0]{error_class} eq 'bad_request', 'the job is dead: no retry could help');
	must((grep { $_->{user} eq $prompt } $provider->calls) == 1, 'after one call, by the log of the provider');
	must($pg->sql("SELECT count(*) FROM llmq.outbox WHERE job_id = '$job'") == 0, 'and its e-mail was not written');
	return;
}

# -- all of it ----------------------------------------------------------------

sub look_at_everything
{
	scene('What came of it');
	my @rows = $pg->rows("SELECT d.name, s.state, s.model, s.input_tokens, s.output_tokens, s.text FROM document AS d
		JOIN llmq.job_status AS s USING (job_id) ORDER BY d.name");
	show_table([qw(document state model in out summary)],
		map { [ @{$_}{qw(name state model input_tokens output_tokens)}, short($_->{text}, 72) ] } @rows);
	my @messages = $pg->rows("SELECT o.id, o.topic, o.payload ->> 'to' AS to, o.payload ->> 'subject' AS subject, o.job_id
		FROM llmq.outbox AS o ORDER BY o.id");
	show_table([qw(id topic to subject job_id)], map { [ @{$_}{qw(id topic to subject job_id)} ] } @messages);
	check_counts(scalar @messages);
	check_texts(@rows);
	my @broken = $pg->rows('SELECT invariant, detail FROM llmq.check()');
	must(!@broken, 'llmq.check() finds no broken invariant', join '; ', map { $_->{invariant} } @broken);
	return;
}

sub check_counts
{
	my ($messages) = @_;
	for my $what (qw(result attempt outbox))
	{
		my @counts = map { $pg->sql("SELECT count(*) FROM llmq.$what WHERE job_id = '$_->{job_id}'") } @documents;
		next if $what eq 'attempt' && $is_real;		# a real provider may have been busy
		must((all { $_ == 1 } @counts), "one row of llmq.$what for each document", "@counts");
	}
	my $wrong = $pg->sql("SELECT count(*) FROM document AS d LEFT JOIN llmq.outbox AS o ON o.job_id = d.job_id AND o.topic = '$TOPIC'
		AND o.payload = jsonb_build_object('to', d.reader, 'subject', 'Summary of ' || d.name) WHERE o.id IS NULL");
	must($wrong == 0, 'each message is for the reader of its document');
	must($messages == @documents + 1, 'and there is no other but that of the job that was busy');
	return if $is_real;
	my @calls = $provider->calls;
	must(@calls == @documents + 4, 'the provider saw ' . @calls . ' calls in all: ' . @documents . ' + 3 + 1');
	return;
}

# The stand-in answers with sentences of the text that it was sent.
sub check_texts
{
	my (@rows) = @_;
	my %body = map { $_->{name} => $_->{body} =~ s/\s+/ /gr } @documents;
	if ($is_real)
	{
		must((all { length $_->{text} } @rows), 'each summary is a text');
		return;
	}
	must((all { length $_->{text} && index($body{ $_->{name} }, $_->{text}) >= 0 } @rows), 'each summary is of the document that was sent');
	return;
}

sub farewell
{
	print "\n   ", scalar claims(), " claims, all of them held.  Servers, stand-in and files go now.\n",
	  "   README.md says how to use llmq in a database of your own.\n\n";
	return;
}
