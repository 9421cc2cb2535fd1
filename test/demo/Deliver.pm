# Deliver - the demo's last scenes: what the outbox holds reaches real receivers, an SMTP server and a
# receiver of webhooks, through a kill -9 of the worker.

package Deliver;

use strict;
use warnings;

use Exporter 'import';
use List::Util qw(all);
use LlmqTest;
use Show;

our @EXPORT = qw(deliver);

my $SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

my ($pg, $mails, $hooks);

# Everything about the documents was asked and answered; their e-mails wait in the outbox.
sub deliver
{
	$pg = shift;
	if (!LlmqTest::Receiver::is_there())
	{
		scene('The e-mails');
		say_that('They stay in the outbox: the receivers of this demo need npm packages, which cannot be had here.');
		return;
	}
	$mails = start_receiver('mail.cjs');
	$hooks = start_receiver('webhook.cjs', '--secret', $SECRET);
	send_the_mails();
	survive_a_kill();
	return;
}

sub add_destination
{
	my (%columns) = @_;
	my @names = grep { exists $columns{$_} } qw(topic kind url credential sender backoff_base);
	my $sql = 'INSERT INTO llmq.destination (' . join(', ', @names) . ")\nVALUES ("
	  . join(', ', map { LlmqTest::Cluster::literal($columns{$_}) } @names) . ');';
	show_sql($sql);
	$pg->sql($sql);
	return;
}

# Waits until no message of these topics is left to be sent.
sub wait_until_sent
{
	my (@topics) = @_;
	my $list = join ', ', map { "'$_'" } @topics;
	wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.outbox WHERE topic IN ($list) AND sent_at IS NULL") == 0 }, 60, 'all messages are sent');
	return;
}

sub send_the_mails
{
	scene('The e-mails go out as soon as there is a destination for their topic');
	say_that('An SMTP server listens at 127.0.0.1:' . $mails->port . ' (smtp-server and mailparser of npm).');
	print "\n";
	add_destination(topic => 'email.summary', kind => 'email', url => 'smtp://127.0.0.1:' . $mails->port,
		sender => 'Summaries <llmq@example.org>');
	wait_until_sent('email.summary');
	my @received = $mails->received;
	show_table([qw(recipient subject message_id)], map { [ "@{$_->{recipients}}", @{$_}{qw(subject message_id)} ] } @received);
	my @expected = $pg->rows(q{SELECT o.payload ->> 'to' AS recipient, o.payload ->> 'subject' AS subject, s.text
		FROM llmq.outbox AS o JOIN llmq.job_status AS s USING (job_id) ORDER BY o.id});
	must(@received == @expected, 'the SMTP server has taken ' . @received . ' mails: one for each message');
	must((all { is_among($_, @received) } @expected), 'each to its reader, with the summary as its text');
	return;
}

# Whether a mail with this recipient, subject and text was received.
sub is_among
{
	my ($expected, @received) = @_;
	my $plain = sub { $_[0] =~ s/\s+/ /gr =~ s/^ | $//gr };
	return scalar grep { $_->{subject} eq $expected->{subject} && "@{$_->{recipients}}" eq $expected->{recipient}
		  && $plain->($_->{text}) eq $plain->($expected->{text}) } @received;
}

sub survive_a_kill
{
	scene('kill -9 in the middle of a hundred calls and their signed webhooks');
	say_that('A receiver of webhooks listens at 127.0.0.1:' . $hooks->port . ', and verifies with the package standardwebhooks.');
	print "\n";
	$pg->secret(hook => $SECRET);
	add_destination(topic => 'summary.ready', kind => 'webhook', url => $hooks->url('/ready'), credential => 'hook', backoff_base => '100 ms');
	my $sql = q{SELECT count(*) FROM generate_series(1, 100) AS n, llmq.submit(
    queue           => 'busy',
    idempotency_key => 'note ' || n,
    prompt          => 'A line about the number ' || n,
    outbox          => '[{"topic": "summary.ready", "payload": {"for": "the demo"}}]')};
	show_sql("$sql;");
	$pg->sql($sql);
	my @before = $hooks->wait_for_received(20);
	my $worker = $pg->wait_for_worker;
	$pg->kill_backend($worker);
	say_that("kill -9 $worker, the worker, when the receiver had " . @before . ' webhooks: PostgreSQL restarts, llmq with it.');
	print "\n";
	$pg->wait_for_worker;
	wait_for(sub { $pg->sql(q{SELECT count(*) FROM llmq.outbox WHERE topic = 'summary.ready' AND sent_at IS NOT NULL}) == 100 }, 80,
		'all webhooks are sent');
	my @received = $hooks->received;
	my %id = map { $_->{headers}{'webhook-id'} => 1 } @received;
	must($pg->sql(q{SELECT count(*) FROM llmq.result AS r JOIN llmq.job AS j USING (job_id) WHERE j.idempotency_key LIKE 'note %'}) == 100,
		'each of the hundred jobs has one answer');
	must($pg->sql(q{SELECT count(*) FROM llmq.message WHERE topic = 'summary.ready'}) == 100, 'and one message');
	must(keys %id == 100, 'the receiver has got all hundred (' . @received . ' deliveries: what was sent and not yet marked came again, under its id)');
	must((all { @{ $_->{verified} } == 1 } @received), 'and every signature is good');
	return;
}

1;
