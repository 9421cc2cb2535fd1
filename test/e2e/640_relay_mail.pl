# The relay's e-mails, received by an SMTP server that nobody here wrote, and read by its parser
# (node_modules/smtp-server, mailparser).

use strict;
use warnings;
use utf8;

use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP ();
use LlmqTest;
use Test::More;

LlmqTest::Receiver::is_there() or plan skip_all => 'the receivers need npm packages (test/setup-npm)';

my $provider = start_provider();
my $receiver = start_receiver('mail.cjs');
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;
my %quick = (backoff_base => '20 ms', backoff_cap => '50 ms');

sub destination
{
	my ($topic, %columns) = @_;
	$pg->insert('destination', topic => $topic, kind => 'email', url => 'smtp://127.0.0.1:' . $receiver->port,
		sender => 'Reports <llmq@example.org>', %quick, %columns);
	return;
}

my $keys = 0;
sub enqueue
{
	my ($topic, %payload) = @_;
	return $pg->sql('SELECT llmq.enqueue_outbox('
		  . join(', ', map { LlmqTest::Cluster::literal($_) } $topic, { text => 'A body.', %payload }, 'key ' . ++$keys) . ')');
}

sub message { my ($id) = @_; return $pg->row("SELECT * FROM llmq.outbox WHERE id = $id") }

sub final
{
	my ($id) = @_;
	wait_for(sub { $pg->sql("SELECT coalesce(sent_at, dead_at) IS NOT NULL FROM llmq.outbox WHERE id = $id") eq 't' }, 60,
		"message $id is sent or dead");
	return message($id);
}

# The mails with a subject.
sub mails { my ($subject) = @_; return grep { ($_->{subject} // '') eq $subject } $receiver->received }

# -- one mail -----------------------------------------------------------------------

destination('mail');
$provider->script({ match => '[job:one]', responses => [ { text => "Grüße aus Köln.\n.\nEnde: 終わり" } ] });
my $job = $pg->submit(prompt => 'Go. [job:one]', idempotency_key => 'one',
	outbox => [ { topic => 'mail', payload => { to => [ 'a@example.org', 'Jörg Ñ <b@example.org>' ], cc => 'c@example.org', subject => 'Zusammenfassung für Müller — 要約' } } ]);
my $id = $pg->sql("SELECT id FROM llmq.outbox WHERE job_id = '$job'") || wait_for(sub { $pg->sql("SELECT id FROM llmq.outbox WHERE job_id = '$job'") }, 30, 'a message');
isnt(final($id)->{sent_at}, undef, 'a mail is sent');
my ($mail) = mails('Zusammenfassung für Müller — 要約');
ok($mail, 'a subject in UTF-8 arrives');
is_deeply($mail->{recipients}, [qw(a@example.org b@example.org c@example.org)], 'all of to and cc are its recipients');
like($mail->{to}, qr/Jörg Ñ/, 'a name in UTF-8 arrives');
is($mail->{text} =~ s/\s+\z//r, "Grüße aus Köln.\n.\nEnde: 終わり", 'the answer is the body of a mail without text, lines with a lone dot and all');
is($mail->{from}, 'llmq@example.org', 'it comes from the sender');
like($mail->{message_id}, qr/^<[^<>@]*\b$id\b[^<>@]*\@example\.org>$/, 'its Message-ID is made of the id of the message');

$id = enqueue('mail', to => 'a@example.org', subject => 'Own text', text => 'Mine.');
final($id);
is((mails('Own text'))[0]{text} =~ s/\s+\z//r, 'Mine.', 'text of the payload is the body');

# -- refusals -------------------------------------------------------------------------

$id = enqueue('mail', to => [ 'a@example.org', 'refuse@example.org' ], subject => 'Partly');
like(final($id)->{last_error}, qr/refuse\@example\.org/, 'a recipient that is refused is named');
isnt(message($id)->{sent_at}, undef, 'and the mail counts as sent');
is_deeply([ map { @{ $_->{recipients} } } mails('Partly') ], ['a@example.org'], 'the others get it, once');

$id = enqueue('mail', to => [ 'a@example.org', 'grey@example.org' ], subject => 'Grey');
isnt(final($id)->{sent_at}, undef, 'a recipient who is put off gets it in the end');
is_deeply([ sort map { @{ $_->{recipients} } } mails('Grey') ], [qw(a@example.org grey@example.org)], 'and the others do not get it twice');

$id = enqueue('mail', to => 'refuse@example.org', subject => 'Refused');
isnt(final($id)->{dead_at}, undef, '5xx for all is dead at once');
is(message($id)->{attempts}, 1, 'after one attempt');
$id = enqueue('mail', to => 'a@example.org', subject => 'reject');
like(final($id)->{last_error}, qr/554.*not wanted here/s, '5xx for the mail is dead, and says what the server said');

destination('mail.busy', max_attempts => 2);
$id = enqueue('mail.busy', to => 'busy@example.org', subject => 'Busy');
isnt(final($id)->{dead_at}, undef, '4xx is tried again, up to max_attempts');
is(message($id)->{attempts}, 2, 'and no more');

destination('mail.die', max_attempts => 2);
$id = enqueue('mail.die', to => 'a@example.org', subject => 'die');
final($id);
my @lost = mails('die');
is(scalar(@lost), 2, 'a mail that was not acknowledged is sent again');
is($lost[0]{message_id}, $lost[1]{message_id}, 'with the same Message-ID');

# -- injection -----------------------------------------------------------------------

my $refused = $pg->query(q{SELECT llmq.enqueue_outbox('mail', '{"to": "a@example.org", "subject": "x\r\nBcc: b@example.org"}', 'evil')});
is($refused->{sqlstate}, 'PT400', 'a line break in a subject is refused when the message is written');
my $early = $pg->sql(q{SELECT llmq.enqueue_outbox('mail.later', '{"to": "a@example.org\n", "subject": "x"}', 'early')});
destination('mail.later');
isnt(final($early)->{dead_at}, undef, 'and dead at the relay if the destination came later');
is(scalar(() = grep { ($_->{headers}{bcc} // '') ne '' } $receiver->received), 0, 'no header was injected');

finish();
