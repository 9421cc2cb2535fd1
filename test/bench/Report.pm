# Report - what the papers say of a run of the benches: REPORT.md, the plots, and the figures of the README.
# All of it comes from report.json, by rules that know no machine and no result, so that it can be written
# anew, and compared, anywhere.  What the run does not have is left out.

package Report;

use strict;
use warnings;

use JSON::PP;
use List::Util qw(max min);
use LlmqTest::Documents;
use Svg;

my $JSON = 'test/bench/report.json';

# What is compared: title, unit, what it is, and [key, name] of each system, llmq first.
my @COMPARED = (
	{ title => 'Jobs in', unit => 'jobs/s', how => 'One job a transaction, four clients at once, each commit on disk. What it is to be on disk, Redis decides by appendfsync: at each command, or each second.',
		rows => [ [ 'insert.llmq', 'llmq' ], [ 'insert.pgq', 'PgQ' ], [ 'insert.graphile', 'graphile-worker' ],
			[ 'insert.redis_always', 'Redis Streams, always' ], [ 'insert.redis_everysec', 'Redis Streams, everysec' ] ] },
	{ title => 'Jobs out', unit => 'jobs/s', how => 'Taken and finished in batches of a hundred, one consumer, no work in between. llmq stores an answer and an attempt for each job, the others nothing.',
		rows => [ [ 'consume.llmq', 'llmq' ], [ 'consume.pgq', 'PgQ' ], [ 'consume.graphile', 'graphile-worker' ],
			[ 'consume.redis_always', 'Redis Streams, always' ], [ 'consume.redis_everysec', 'Redis Streams, everysec' ] ] },
	{ title => 'Whole calls', unit => 'jobs/s', how => 'From the first submit until the last answer and the message that follows from it are committed, with a provider that answers at once.',
		rows => [ [ 'calls.llmq.submit_many', 'llmq' ], [ 'calls.graphile', 'graphile-worker' ],
			[ 'calls.by_hand_1', 'by hand, 1 process' ], [ 'calls.by_hand_4', 'by hand, 4 processes' ] ] });

# What llmq does with nobody beside it: key, name, unit.
my @ALONE = ([ 'bulk.llmq', 'jobs submitted by submit_many of 1000, one client', 'jobs/s' ],
	[ 'calls.llmq.4_pgbench_clients', 'whole calls, submitted one by one by four clients', 'jobs/s' ],
	[ 'wide', '2,000 calls of 1 s, 2,000 slots: until all are stored', 's' ],
	[ 'mixed', '2,000 calls, every tenth of 10 s and the others of 1 s, 200 slots (full all the time: 19 s)', 's' ],
	[ 'wide10k.seconds', '10,000 calls of 1 s, one llmq-worker with 10,000 slots: until all are stored', 's' ],
	[ 'wide10k.memory', 'the most memory of that program', 'MB' ],
	[ 'scale.1.1', 'one program of 200 slots, calls of 1 s', 'jobs/s' ], [ 'scale.1.3', 'three of them', 'jobs/s' ],
	[ 'backlog.none', 'a claim of ten jobs, nothing else in the queue', 'ms' ],
	[ 'backlog.large', 'the same, 200,000 ready, and 20,000 deferred, dead and paused each', 'ms' ],
	[ 'limits.requests.3.sliding.used', 'of a quota of requests, used by three workers under full load', '%' ],
	[ 'limits.requests.3.sliding.refused', 'of the calls, refused by a provider that counts a sliding minute', '%' ],
	[ 'limits.tokens.3.sliding.used', 'of a quota of tokens, used', '%' ], [ 'limits.tokens.3.sliding.refused', 'refused', '%' ],
	[ 'webhooks.ordered', 'signed webhooks sent, one topic, in order', 'messages/s' ], [ 'webhooks.topics', 'eight topics, each in order', 'messages/s' ],
	[ 'webhooks.wide', 'one topic, 16 at once', 'messages/s' ], [ 'commits.1', 'for comparison: commits of one row, one client', 'commits/s' ],
	[ 'commits.4', 'the same, four clients', 'commits/s' ]);

my @FLAT = ([ 'flat.llmq.claim', 'llmq' ], [ 'flat.pgq.claim', 'PgQ' ], [ 'flat.graphile.claim', 'graphile-worker' ]);
my @PERCENTS = (50, 95, 99);

my $run;

# Writes all papers, but for examples' outputs, from report.json.
sub write_papers
{
	my $papers = papers();
	unlink glob LlmqTest::Documents::path('test/bench/plots/*.svg');
	LlmqTest::Documents::write_file($_, $papers->{$_}) for keys %{$papers};
	LlmqTest::Documents::write_file($_, fill(LlmqTest::Documents::read_file($_))) for LlmqTest::Documents::paths();
	return;
}

sub load { $run //= decode_json(LlmqTest::Documents::read_file($JSON)); return $run->{runs} }

# Returns what is to be in files of their own: path to text.
sub papers
{
	load();
	return { 'test/bench/REPORT.md' => report(), map { ("test/bench/plots/$_->[0].svg" => $_->[2]) } plots() };
}

# Returns a text with the figures between its marks written anew.
sub fill
{
	my ($text) = @_;
	load();
	my %figures = (summary => \&summary, sizing => \&sizing);
	return $text =~ s/(<!-- figures (\w+) -->\n).*?(<!-- end of figures -->)/$1 . $figures{$2}->() . $3/gser;
}

sub summary
{
	return join('', map { "![$_->[1]](test/bench/plots/$_->[0].svg)\n\n" } plots()) . latency_line() . where_from('test/bench/REPORT.md') . "\n";
}

sub sizing
{
	my @sizes = grep { numbers($_->[0]) } [ 'size.disk', 'on disk, with indexes', 'bytes' ], [ 'size.wal', 'WAL, from submit to the end', 'bytes' ],
	  [ 'size.cpu', 'CPU time of the worker', 'µs' ];
	return row('of each job', '') . "|---|--:|\n" . join '', map { row($_->[1], Svg::short(median(numbers($_->[0]))) . " $_->[2]") } @sizes;
}

# -- numbers ---------------------------------------------------------------------

sub percentile
{
	my ($percent, @values) = @_;
	my @sorted = sort { $a <=> $b } @values;
	return $sorted[ int($#sorted * $percent / 100 + 0.5) ];
}

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return @sorted % 2 ? $sorted[ $#sorted / 2 ] : ($sorted[ @sorted / 2 - 1 ] + $sorted[ @sorted / 2 ]) / 2;
}

# The first number of each run that has this key.
sub numbers { my ($key) = @_; return map { $_->[0] } @{ $run->{runs}{$key} // [] } }

# The bars of a comparison: those systems that the run has.
sub bars
{
	my ($compared) = @_;
	my @bars;
	for (@{ $compared->{rows} })
	{
		my ($key, $name) = @{$_};
		my @numbers = numbers($key) or next;
		push @bars, { name => $name, value => median(@numbers), low => min(@numbers), high => max(@numbers) };
	}
	return @bars;
}

sub waits { return map { @{$_} } @{ $run->{runs}{latency} // [] } }

# The series of a key: means of ten seconds each, of the one run.
sub series { my ($key) = @_; return @{ ($run->{runs}{$key} // [ [] ])->[0] } }

# -- plots -------------------------------------------------------------------------

sub subtitle
{
	my ($what) = @_;
	return $what . ($run->{about}{mode} eq 'quick' ? '; a quick run, which says little' : '');
}

# Those that the run has numbers for: [name, what it shows, plot] each.
sub plots
{
	return grep { defined $_->[2] } [ throughput => 'Jobs a second, beside others', throughput() ],
	  [ flat => 'Claims under an old snapshot', flat_plot() ], [ latency => 'From commit to call', latency_plot() ];
}

sub throughput
{
	my @groups = grep { @{ $_->{bars} } } map { { title => $_->{title}, unit => $_->{unit}, bars => [ bars($_) ] } } @COMPARED;
	my $repeats = $run->{about}{repeats};
	return @groups ? Svg::bars('Jobs a second', subtitle($repeats > 1 ? "medians of $repeats runs, the lines reach from the lowest to the highest" : 'one run'), @groups) : undef;
}

sub flat_plot
{
	my @lines;
	for (@FLAT)
	{
		my ($key, $name) = @{$_};
		my @means = series($key);
		push @lines, { name => $name, points => [ map { [ 10 * ($_ + 1), $means[$_] ] } 0 .. $#means ] } if @means > 1;
	}
	return @lines ? Svg::lines('The time of a claim, while a snapshot is held', subtitle('1000 jobs/s in and out of each, batches of ten; one run'), 'seconds since the snapshot',
		'ms a claim', @lines) : undef;
}

sub latency_plot
{
	my @waits = waits() or return undef;
	return Svg::histogram('From the commit of a submit to the call', subtitle(@waits . ' jobs, one by one, to a worker that has nothing else to do'), 'ms',
		\@waits, [ map { { name => "p$_", value => percentile($_, @waits) } } @PERCENTS ]);
}

# -- texts -----------------------------------------------------------------------------

sub row { return '| ' . join(' | ', @_) . " |\n" }

sub latency_line
{
	my @waits = waits() or return '';
	return 'From the commit of a submit to the call: ' . join(', ', map { "p$_ " . Svg::short(percentile($_, @waits)) . ' ms' } @PERCENTS) . '. ';
}

sub where_from
{
	my ($link) = @_;
	my $about = $run->{about};
	my $kind = $about->{mode} eq 'quick' ? 'a quick run, which shows that the benches work, and little else' : "a run of $about->{minutes} minutes";
	return "These are figures of $kind, on $about->{date} ($run->{machine}{cores} cores, PostgreSQL $run->{versions}{PostgreSQL}): [$link]($link) has "
	  . 'all of them, and `make bench` writes your own.';
}

sub report
{
	my $about = $run->{about};
	my $out = "# What the benches have shown\n\nWritten by `make bench` from what it has measured (report.json); nothing is in it that this run did not show.\n\n";
	$out .= "**This was a quick run**: everything once, and with little of everything. It shows that the benches work; take no figure from it.\n\n" if $about->{mode} eq 'quick';
	$out .= "**Not all went well**, and what is missing here was not shown: " . join('; ', @{ $about->{failed} }) . ".\n\n" if @{ $about->{failed} // [] };
	$out .= compared($_) for @COMPARED;
	return $out . flat() . latency() . alone() . surroundings();
}

sub compared
{
	my ($compared) = @_;
	my @bars = bars($compared) or return '';
	my $out = "## $compared->{title}\n\n$compared->{how}\n\n" . row('', "median, $compared->{unit}", 'lowest', 'highest', 'llmq ÷ it') . "|---|--:|--:|--:|--:|\n";
	my $ours = $bars[0]{name} eq 'llmq' ? $bars[0]{value} : undef;
	$out .= row($_->{name}, map({ Svg::short($_) } @{$_}{qw(value low high)}), $ours && $_->{name} ne 'llmq' ? sprintf('%.2f', $ours / $_->{value}) : '') for @bars;
	return "$out\n" . ($compared == $COMPARED[-1] ? "![Jobs a second](plots/throughput.svg)\n\n" : '');
}

sub flat
{
	my @rows = grep { my @means = series($_->[0]); @means > 1 } @FLAT, [ 'flat.llmq.yardstick', 'work on no table, for comparison' ] or return '';
	my $out = "## Claims under an old snapshot\n\n1000 jobs a second go in and out of each, in batches of ten, while a transaction holds a snapshot; the mean of each ten seconds, "
	  . "without waiting for the disk.\n\n" . row('', 'first, ms', 'last, ms', 'last by first') . "|---|--:|--:|--:|\n";
	for (@rows)
	{
		my @means = series($_->[0]);
		$out .= row($_->[1], map({ Svg::short($_) } @means[ 0, -1 ]), sprintf '%.2f', $means[-1] / $means[0]);
	}
	return "$out\n![The time of a claim](plots/flat.svg)\n\n";
}

sub latency
{
	my @waits = waits() or return '';
	return "## From commit to call\n\n" . @waits . " jobs, one by one, to a worker that has nothing else to do, by the clock of the commits and of the provider's log.\n\n"
	  . row((map { "p$_, ms" } @PERCENTS), 'longest, ms') . '|' . '--:|' x (@PERCENTS + 1) . "\n"
	  . row(map { Svg::short($_) } (map { percentile($_, @waits) } @PERCENTS), max @waits) . "\n![From commit to call](plots/latency.svg)\n\n";
}

sub alone
{
	my $out = '';
	for (@ALONE)
	{
		my ($key, $name, $unit) = @{$_};
		my @numbers = numbers($key) or next;
		$out .= row($name, Svg::short(median(@numbers)) . " $unit", Svg::short(min(@numbers)), Svg::short(max(@numbers)), scalar @numbers);
	}
	return $out && "## llmq by itself\n\n" . row('', 'median', 'lowest', 'highest', 'runs') . "|---|--:|--:|--:|--:|\n$out\n";
}

sub surroundings
{
	my ($about, $machine) = @{$run}{qw(about machine)};
	my $list = sub { my ($hash, $mark) = @_; return join ', ', map { "$_$mark$hash->{$_}" } sort { lc $a cmp lc $b } keys %{$hash} };
	return "## Where, and how\n\n" . row('', '') . "|---|---|\n"
	  . row('run', "$about->{date}, $about->{minutes} minutes, $about->{repeats} of each comparison, in turns; llmq at commit $about->{commit}")
	  . row('machine', "$machine->{cpu}, $machine->{cores} cores, $machine->{memory}, $machine->{file_system}; load average before: $about->{load_before}")
	  . row('system', "$machine->{system}, $machine->{kernel}") . row('versions', $list->($run->{versions}, ' '))
	  . row('server', $list->($run->{settings}, ' = ')) . "\n"
	  . "Everything runs on this one machine: servers, clients, the provider (nginx, with a fixed answer), the peers. PgQ and graphile-worker are in\n"
	  . "the same server as llmq. For jobs out, and under an old snapshot, sessions in the server play llmq's worker and PgQ's consumer; graphile-worker\n"
	  . "is its own, and what its claims take is what pg_stat_statements says. For whole calls llmq has one worker; graphile-worker and the worker by\n"
	  . "hand (by_hand.py: Redis Streams, tenacity, psycopg) call the same provider, and commit a row for the answer and one for the message in one\n"
	  . "transaction; graphile-worker makes 50 calls at once, a process by hand one.\n";
}

1;
