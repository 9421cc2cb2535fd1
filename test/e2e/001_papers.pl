# The papers that come with the sources keep up with them: one version everywhere, and a README that
# leaves out no setting, no column and no argument.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP;
use LlmqTest;
use Test::More;

sub read_file
{
	my ($path) = @_;
	open(my $file, '<:raw', "$FindBin::Bin/../../$path") or die "$path: $!\n";
	local $/;
	return <$file>;
}

my ($version) = read_file('extension/llmq.control') =~ /^default_version = '([\d.]+)'$/m;
my $meta = decode_json(read_file('META.json'));
is($meta->{version}, $version, "META.json has the control file's version");
is($meta->{provides}{llmq}{version}, $version, 'and so has what it provides');
ok((defined $meta->{$_}), "META.json has the required field $_") for qw(name abstract maintainer license meta-spec);
ok(-f "$FindBin::Bin/../../$meta->{provides}{llmq}{$_}", "META.json's $_ is there") for qw(file docfile);
like(read_file('LICENSE'), qr/\AThe PostgreSQL License\n/, 'there is a license');
is((read_file('CHANGELOG.md') =~ /^## (\S+)/m)[0], $version, 'the newest version of the CHANGELOG is this one');

my $readme = read_file('README.md');
like($readme, qr/\(\Q$version\E\)/, 'the README speaks of this version');

my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1);
my @missing;

# Notes what the README does not name.
sub look_for { push @missing, map { $_->{what} } grep { $readme !~ /(?<![\w.])\Q$_->{word}\E(?!\w)/ } $pg->rows($_[0]); return }

look_for(q{SELECT name AS word, name AS what FROM pg_settings WHERE name LIKE 'llmq.%'});
look_for(q{SELECT attname AS word, attrelid::regclass || '.' || attname AS what FROM pg_attribute
	WHERE attnum > 0 AND NOT attisdropped AND attrelid = ANY ('{llmq.endpoint, llmq.queue, llmq.destination, llmq.budget,
		llmq.role_tenant, llmq.job_status, llmq.dead_letter, llmq.result, llmq.attempt, llmq.outbox, llmq.worker}'::regclass[])});
look_for(q{SELECT unnest(proargnames) AS word, proname || ' ' || unnest(proargnames) AS what FROM pg_proc
	WHERE pronamespace = 'llmq'::regnamespace AND proname IN ('submit', 'http_submit', 'wait', 'redrive_queue')});
is(join(', ', @missing), '', 'the README leaves out no setting, no column, no argument');

# What was given to roles, but for what other functions need.
my %inner = map { $_ => 1 } qw(namespace uuid5 may_see submitter wait_reason lost_sessions default_queue);
$pg->sql(q{CREATE ROLE somebody; SELECT llmq.grant_admin('somebody')});
my @functions = map { $_->{proname} } $pg->rows(q{SELECT DISTINCT proname FROM pg_proc
	WHERE pronamespace = 'llmq'::regnamespace AND has_function_privilege('somebody', oid, 'EXECUTE')});
is(join(' ', grep { !$inner{$_} && $readme !~ /llmq\.$_\b/ } @functions), '', 'it names every function that roles are given');

finish();
