# The bench of the relay, which test/bench/run starts: how many signed webhooks a second reach a fast
# receiver (nginx), beside what the same machine does in commits in the same run.

use strict;
use warnings;

use Bench;
use LlmqTest;
use Nginx;
use Time::HiRes qw(sleep time);

my $MESSAGES = $ENV{MESSAGES} || 10_000;
my $TOPICS = 8;
my $SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
my $COMMIT_SECONDS = 5;

my $nginx = Nginx->start;
my $pg = bench_cluster();
$pg->secret(hook => $SECRET);

commits();
webhooks(ordered => 'one topic, in order', 1, 1) if is_wanted('ordered');
webhooks(topics => "$TOPICS topics, each in order", $TOPICS, 1) if is_wanted('topics');
webhooks(wide => 'one topic, 16 at once', 1, 16) if is_wanted('wide');
$nginx->stop;
LlmqTest::leave(1);
exit Bench::exit_code();

# What one session, and four, commit a second: the smallest transaction that writes.
sub commits
{
	$pg->sql('CREATE TABLE commit_yardstick (n int)');
	my $script = LlmqTest::test_dir() . '/commit.sql';
	open(my $file, '>', $script) or die "$script: $!\n";
	print {$file} "INSERT INTO commit_yardstick VALUES (1);\n";
	close $file;
	heading('Commits of one row');
	for my $clients (1, 4)
	{
		my ($rate) = pgbench($clients, $script) =~ /tps = (\d+)/ or wrong('pgbench printed no tps');
		figure("$clients client" . ($clients > 1 ? 's' : '') . ', commits/s', $rate // '?');
		record("commits.$clients" => $rate // 0);
	}
	return;
}

sub pgbench
{
	my ($clients, $script) = @_;
	my @command = (LlmqTest::Cluster::program('pgbench'), '-n', '-h', $pg->socket_dir, '-U', 'postgres', '-T', $COMMIT_SECONDS,
		'-c', $clients, '-f', $script, 'bench');
	open(my $out, '-|', @command) or die "pgbench: $!\n";
	local $/;
	return <$out>;
}

sub webhooks
{
	my ($part, $name, $topics, $max_in_flight) = @_;
	heading("$MESSAGES signed webhooks: $name");
	(my $prefix = $name) =~ s/\W+/_/g;
	$pg->sql("INSERT INTO llmq.destination (topic, kind, url, credential, max_in_flight)
		VALUES ('$prefix*', 'webhook', '" . $nginx->url(0) . "', 'hook', $max_in_flight)");
	$nginx->take_times;
	my $cpu = cpu_seconds($pg->wait_for_worker);
	my $start = time;
	$pg->sql("SELECT count(llmq.enqueue_outbox('$prefix' || n % $topics, to_jsonb(n), '$prefix ' || n)) FROM generate_series(1, $MESSAGES) AS n");
	my $written = time;
	sleep 0.05 while $pg->sql("SELECT count(*) FROM llmq.message_done") < $MESSAGES;
	my $took = time - $written;
	my @times = $nginx->take_times;
	@times == $MESSAGES or wrong(@times . ' webhooks were received');
	figure('from the commit of all to the last one marked, webhooks/s', sprintf('%.0f', $MESSAGES / $took), 'at least 1000');
	record("webhooks.$part" => sprintf '%.0f', $MESSAGES / $took);
	figure('CPU of the worker for one', sprintf('%.0f us', 1e6 * (cpu_seconds($pg->wait_for_worker) - $cpu) / $MESSAGES));
	$pg->sql('TRUNCATE llmq.message_done, llmq.message');
	return;
}
