# Torture - breaks everything that llmq makes promises about, and then asks whether they were kept.
#
# A run is: a server with two workers in database app, programs that are workers too, a provider that receives
# webhooks too, and around them actors, each with a generator of its own that follows from the seed: clients (Torture::Client), administrators and strangers
# (Torture::Disturber), one that kills clients and programs (Torture::Troop) and one that kills servers
# (Torture::Assassin).  When their time is over, all is let become quiet, and Torture::Verdict compares
# what the clients know, what the provider has seen, and what the tables say.
#
# Here only processes die, never the machine: fsync is off, and synchronous_commit is on.

package Torture;

use strict;
use warnings;

use JSON::PP ();
use List::Util qw(sum0);
use LlmqTest;
use POSIX ();
use Time::HiRes qw(sleep);

use Torture::Assassin;
use Torture::Chance;
use Torture::Client;
use Torture::Disturber;
use Torture::Job;
use Torture::KillLog;
use Torture::Ledger;
use Torture::Troop;
use Torture::Verdict;

# So many calls at once, and no more jobs that wait, can a provider in one process of Python serve in time
# on a busy machine; more of them would all time out, and be called again.
use constant MAX_IN_FLIGHT => 50;
use constant MAX_READY => 500;

# To each kill of the server, in a storm that ends by their number.
use constant KILLS_OF_OTHERS => 9;

# Options: seed, seconds (of the storm), kills (of the server; if given, the storm ends when there were so
# many, and KILLS_OF_OTHERS times as many of clients and programs), clients and programs (how many), calm (mean seconds between two faults of the server), client_kills (a second).
# Returns {pg, dir, verdict, figures, kills, restarts}.
sub run
{
	my (%options) = @_;
	my $dir = test_dir() . '/torture';
	mkdir $dir, 0755 or die "$dir: $!\n";
	my %run = (seed => $options{seed}, dir => $dir);
	$run{provider} = start_provider(args => [ '--script', write_rules("$dir/rules") ]);
	$run{pg} = set_up($run{provider});
	$run{kills} = Torture::KillLog->new("$dir/kills.log", $options{seed});
	$run{restarts} = storm(\%run, %options);
	calm(\%run);
	Torture::Verdict::await_quiet($run{pg});
	Torture::Verdict::load($run{pg}, $dir, $run{provider}->log_path);
	return { pg => $run{pg}, dir => $dir, restarts => $run{restarts}, kills => $run{kills}->counts,
		verdict => [ Torture::Verdict::ask($run{pg}) ], figures => [ Torture::Verdict::figures($run{pg}) ] };
}

sub write_rules
{
	my ($path) = @_;
	open(my $file, '>', $path) or die "$path: $!\n";
	print {$file} JSON::PP->new->utf8->canonical->encode([ Torture::Job::rules() ]);
	close $file;
	return $path;
}

sub set_up
{
	my ($provider) = @_;
	my $pg = start_cluster(preload => 1, conf => {
		'llmq.workers' => 2, 'llmq.poll_interval' => '1 s', max_connections => 60, max_worker_processes => 24,
		log_min_messages => 'log', log_min_error_statement => 'panic', max_wal_size => '4GB' });
	$pg->sql('CREATE DATABASE other');
	$pg->create_database('app', extension => 1, provider => $provider);
	$pg->sql("UPDATE llmq.endpoint SET max_in_flight = @{[ MAX_IN_FLIGHT ]}");
	$pg->insert('queue', name => 'torture', max_ready => MAX_READY, call_timeout => '2 s', deadline => '8 s', max_attempts => 4, min_attempt => '0.1 s',
		backoff_base => '20 ms', backoff_cap => '200 ms', max_deliveries => 1000, redelivery_base => '20 ms', redelivery_cap => '500 ms');
	$pg->insert('destination', topic => $_, kind => 'webhook', url => $provider->url("/hook/$_"), timeout => '1 s', max_attempts => 1000, max_in_flight => 20,
		backoff_base => '20 ms', backoff_cap => '200 ms') for Torture::Job::topics();
	$pg->sql(q{CREATE ROLE client LOGIN; SELECT llmq.grant_submit('client');
		CREATE ROLE remote LOGIN; SELECT llmq.grant_worker('remote');
		CREATE TABLE public.mirror (key text PRIMARY KEY);
		CREATE TABLE public.effect (job_id uuid, state text);
		CREATE TABLE public.once (key text);
		GRANT SELECT, INSERT ON public.mirror, public.effect, public.once TO client;
		CREATE FUNCTION public.note_effect(job jsonb) RETURNS void LANGUAGE sql
			AS $$ INSERT INTO public.effect VALUES ((job ->> 'job_id')::uuid, job ->> 'state') $$});
	return $pg;
}

# Runs all actors until the time is over.  Returns how often the server was restarted.
sub storm
{
	my ($run, %options) = @_;
	$run->{pg}->disconnect_all;		# an actor must not hold a session's pipes
	my @actors = (start_troop($run, %options), map { start_disturber($run, $_) } Torture::Disturber::roles());
	my $assassin = Torture::Assassin->new(%{$run}, chance => Torture::Chance->new($run->{seed}, 'assassin'));
	my $well = eval { strike_on($assassin, %options); 1 };
	my $error = $@;
	end_actors(@actors);
	die $error unless $well;
	return $assassin->{restarts};
}

# Commits one fault after another.
sub strike_on
{
	my ($assassin, %options) = @_;
	my $end = now() + $options{seconds};
	until (now() > $end || $options{kills} && is_enough($assassin, $options{kills}))
	{
		sleep $assassin->{chance}->wait($options{calm});
		$assassin->strike;
	}
	return;
}

sub is_enough
{
	my ($assassin, $wanted) = @_;
	return 0 if $assassin->{restarts} < $wanted;
	my $counts = $assassin->{kills}->counts;
	return KILLS_OF_OTHERS * $wanted <= sum0(map { $counts->{"$_, SIGKILL"} // 0 } 'client', 'llmq-worker');
}

# Runs an actor in a process of its own, and returns its id.
sub start_actor
{
	my ($act) = @_;
	my $pid = fork // die "fork: $!\n";
	return $pid if $pid;
	$SIG{$_} = 'DEFAULT' for qw(INT HUP ALRM);
	eval { $act->(); 1 } or print STDERR "an actor has failed: $@";
	POSIX::_exit($@ ? 1 : 0);
}

# Has processes of ours leave, and waits for them.  One that was just born may not have heard it the first time.
sub end_actors
{
	my (@pids) = @_;
	while (@pids)
	{
		kill 'TERM', @pids;
		sleep 0.05;
		@pids = grep { waitpid($_, POSIX::WNOHANG) == 0 } @pids;
	}
	return;
}

sub start_troop
{
	my ($run, %options) = @_;
	my %common = (seed => $run->{seed}, dir => $run->{dir}, socket_dir => $run->{pg}->socket_dir);
	my $troop = Torture::Troop->new(kills => $run->{kills}, rate => $options{client_kills},
		chance => Torture::Chance->new($run->{seed}, 'troop'), ledger => Torture::Ledger->new("$run->{dir}/troop.ledger"));
	for my $slot (1 .. $options{clients})
	{
		$troop->add(client => sub { Torture::Client->new(%common, slot => $slot, generation => $_[0])->run });
	}
	for my $slot (1 .. $options{programs})
	{
		$troop->add('llmq-worker' => sub { run_program($run, $slot) });
	}
	return start_actor(sub { $troop->run });
}

# Becomes a worker that is no process of the server.
sub run_program
{
	my ($run, $slot) = @_;
	my @command = LlmqTest::Program::command("--name", "program-$slot", '--poll-interval', 1, $run->{pg}->conninfo('app', 'remote'));
	open(STDOUT, '>>', "$run->{dir}/program-$slot.log") or die "program-$slot.log: $!\n";
	open(STDERR, '>&', \*STDOUT) or die "stderr: $!\n";
	exec @command or die "$command[0]: $!\n";
}

sub start_disturber
{
	my ($run, $role) = @_;
	my $url = $run->{provider}->url;
	my %options = (seed => $run->{seed}, dir => $run->{dir}, socket_dir => $run->{pg}->socket_dir,
		stranger_endpoint => "INSERT INTO llmq.endpoint (name, api, url, model) VALUES ('main', 'openai_chat', '$url', 'stand-in')");
	return start_actor(sub { Torture::Disturber->new($role, %options)->run });
}

# Takes back what disturbs and does not end by itself.
sub calm
{
	my ($run) = @_;
	my $pg = $run->{pg};
	$pg->sql("UPDATE llmq.queue SET paused = false, max_in_flight = NULL; UPDATE llmq.endpoint SET max_in_flight = @{[ MAX_IN_FLIGHT ]};
		SELECT llmq.start_worker()");
	return;
}

1;
