# What those who watch see: each query of the dashboard runs for a member of pg_monitor, on an empty
# database and on one that was used.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP qw(decode_json);
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1, provider => $provider);
$pg->wait_for_worker;
$pg->sql('CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
my $watcher = $pg->session('app');
$watcher->query('SET SESSION AUTHORIZATION watcher');

# -- the dashboard ----------------------------------------------------------------

my $path = ($ENV{LLMQ_STAGE} // '') . LlmqTest::Cluster::config('sharedir') . '/llmq/grafana.json';
open(my $file, '<:raw', $path) or die "$path: $!\n";
my $dashboard = decode_json(do { local $/; <$file> });
my @panels = @{ $dashboard->{panels} };
cmp_ok(scalar(@panels), '>', 5, 'make install leaves a dashboard');
my %seen;
is((grep { $seen{ $_->{id} }++ || $seen{ $_->{title} }++ } @panels)[0], undef, 'each panel has an id and a title of its own');

# Writes a query as Grafana would, for the last six hours.
sub expand
{
	my ($sql) = @_;
	$sql =~ s/\$__timeFilter\((\w+)\)/$1 BETWEEN now() - interval '6 hours' AND now()/g;
	$sql =~ s/\$__timeGroupAlias\((\w+), (?:\$__interval|'\w+')\)/floor(extract(epoch from $1)\/60)*60 AS "time"/g;
	return $sql;
}

# Runs every query as the one who watches; returns the number of rows of each panel.
sub look
{
	my ($when) = @_;
	my %rows;
	for my $panel (@panels)
	{
		my ($sql, $more) = map { expand($_->{rawSql}) } @{ $panel->{targets} };
		die "$panel->{title} has several queries\n" if $more;
		my $result = $watcher->query("SELECT count(*) FROM ($sql) AS t");
		is("$result->{sqlstate} $result->{err}", '00000 ', "$panel->{title} can be shown $when");
		$rows{ $panel->{title} } = $result->{out};
	}
	return %rows;
}

my @unknown = grep { expand($_->{targets}[0]{rawSql}) =~ /\$/ } @panels;
is(join(' ', map { $_->{title} } @unknown), '', 'no query has a macro that this test does not know');
is((grep { $_->{targets}[0]{format} eq 'time_series' && expand($_->{targets}[0]{rawSql}) !~ / AS "time"/ } @panels)[0], undef,
	'each series has its time');

my %empty = look('on an empty database');
is($empty{'Workers, one by one'}, 1, 'with its worker');
$provider->script({ match => '[job:bad]', responses => [ { status => 400 } ] });
my $good = $pg->submit(prompt => 'Go. [job:good]', idempotency_key => 'good', outbox => [ { topic => 't', payload => {} } ]);
my $bad = $pg->submit(prompt => 'Go. [job:bad]', idempotency_key => 'bad');
is($pg->final_state($good)->{state} . $pg->final_state($bad)->{state}, 'succeededdead', 'jobs were run');
my %used = look('on a database that was used');
is(join(' ', map { $_->{title} } grep { !$used{ $_->{title} } } @panels), '', 'then no panel is empty');

# -- the queues -----------------------------------------------------------------------------

$provider->script({ match => '[job:held]', responses => [ { hold => 'held' }, {} ] });
my $held = $pg->submit(prompt => 'Hold on. [job:held]', idempotency_key => 'held');
$provider->wait_for_calls('held', 1);
is($watcher->query("SELECT in_flight FROM llmq.queue_status WHERE queue = 'default'")->{out}, 1, 'a call that is under way is in the view of queues');
$provider->release('held');
is($pg->final_state($held)->{state}, 'succeeded', 'the call ends');

finish();
