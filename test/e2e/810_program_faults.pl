# llmq-worker when what is between it and its database fails: answers that get lost, a server that
# stands still, a primary that dies and a replica that is promoted, poolers of both kinds.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use File::Temp ();
use LlmqTest;
use LlmqTest::Process;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.workers' => 0 });
$pg->create_database('app', extension => 1, provider => $provider);
my $dir = File::Temp->newdir('llmq-XXXXXX', TMPDIR => 1);	# short: the path of a socket has 107 bytes
my %patient = (call_timeout => '100 s', deadline => '110 s');

sub submit_held
{
	my ($name, %arguments) = @_;
	$provider->script({ match => "[job:$name]", responses => [ map { { hold => "$name-$_", text => "answer $_" } } 1 .. 3 ] });
	my $job = $pg->submit(prompt => "Hold on. [job:$name]", idempotency_key => $name, policy => \%patient, %arguments);
	$provider->wait_for_calls($name, 1);
	return $job;
}

sub calls { return scalar(my @calls = $provider->calls(@_)) }

sub write_file
{
	my ($path, $text) = @_;
	open(my $file, '>', $path) or die "$path: $!\n";
	print {$file} $text;
	close $file;
	return;
}

# -- an answer of the database gets lost -------------------------------------------

{
	mkdir "$dir/proxy" or die;
	my $proxy = LlmqTest::Process->start("$dir/proxy.log", '/usr/bin/python3', "$FindBin::Bin/../fake/proxy.py",
		"$dir/proxy/.s.PGSQL.5432", $pg->socket_dir . '/.s.PGSQL.5432', "$dir/order");
	wait_for(sub { -e "$dir/proxy/.s.PGSQL.5432" }, 10, 'the proxy listens');
	my $worker = start_program($pg, conninfo => "host=$dir/proxy dbname=app user=postgres");
	$pg->wait_for_programs(1);
	for my $operation (qw(claim settle))
	{
		write_file("$dir/order", "worker_$operation");
		my $job = $pg->submit(prompt => "Once. [job:lost-$operation]", idempotency_key => "lost $operation",
			outbox => [ { topic => 'mail', payload => {} } ]);
		is($pg->final_state($job, 20)->{state}, 'succeeded', "the answer to a $operation gets lost: the job succeeds");
		is(-e "$dir/order" ? 1 : 0, 0, '(it did)');
		is(calls("lost-$operation"), 1, 'and is called once');
		is($pg->sql("SELECT count(*) FROM llmq.outbox WHERE job_id = '$job'"), 1, 'with one message');
	}
	is($worker->terminate, 0, 'the program ends well');
	$proxy->end('TERM');
}

# -- the server stands still ---------------------------------------------------------

{
	my $worker = start_program($pg);
	$pg->wait_for_programs(1);
	$provider->script({ match => '[job:frozen]', responses => [ { hold => 'frozen' }, { text => 'thawed' } ] });
	my $job = $pg->submit(prompt => 'Brr. [job:frozen]', idempotency_key => 'frozen', policy => { call_timeout => '3 s', deadline => '60 s', backoff_base => '10 ms' });
	$provider->wait_for_calls('frozen', 1);
	my $backend = $pg->sql('SELECT pid FROM llmq.worker');
	kill 'STOP', $backend;
	ok(wait_for(sub { ($provider->calls('frozen'))[0]{how} }, 10, 'the call has ended'), 'the clock of a call goes on while the server stands still');
	$provider->wait_for_calls('frozen', 2);
	kill 'CONT', $backend;
	is($pg->final_state($job)->{text}, 'thawed', 'and the answer is settled when it moves again');
	$worker->terminate;
}

# -- a replica is promoted -------------------------------------------------------------

{
	my $standby = new_cluster(preload => 1);
	LlmqTest::Cluster::run('rm', '-rf', $standby->data_dir);
	LlmqTest::Cluster::run(LlmqTest::Cluster::program('pg_basebackup'), '-D', $standby->data_dir, '-h', $pg->socket_dir,
		'-U', 'postgres', '-R', '-X', 'stream', '-c', 'fast');
	chmod 0700, $standby->data_dir;
	$standby->set(unix_socket_directories => $standby->socket_dir, 'llmq.secrets_directory' => $standby->socket_dir . '/secrets');
	$standby->start;
	$standby->use_database('app');

	my $misled = start_program($standby);
	ok(wait_for(sub { $misled->log_text =~ /cannot be reached: .*(read-only|recovery|hot standby)/ }, 20, 'it says why'), 'a program does not work on a replica');
	$misled->terminate;

	my $both = 'host=' . $pg->socket_dir . ',' . $standby->socket_dir . ' port=5432,5432 dbname=app user=postgres';
	my $worker = start_program($pg, name => 'faithful', conninfo => $both);
	my $job = submit_held('failover');
	my $written = $pg->sql('SELECT pg_current_wal_lsn()');
	wait_for(sub { $standby->sql("SELECT pg_last_wal_replay_lsn() >= '$written'") eq 't' }, 20, 'the replica has it all');
	$pg->kill9;
	$provider->release('failover-1');
	my $promoted = now();
	$standby->sql('SELECT pg_promote()');
	is($standby->final_state($job)->{text}, 'answer 1', 'an answer in hand is settled in the replica that was promoted');
	my $next = $standby->submit(prompt => 'Next. [job:next]', idempotency_key => 'next');
	is($standby->final_state($next)->{state}, 'succeeded', 'where the program goes on');
	note(sprintf '%.1f s after the promotion', now() - $promoted);
	is(calls('failover'), 1, 'no call was repeated');
	is($worker->terminate, 0, 'and ends well');
	$pg = $standby;
}

# -- poolers -----------------------------------------------------------------------------

SKIP:
{
	my $pgbouncer = '/usr/sbin/pgbouncer';
	skip 'pgbouncer is not installed', 9 unless -x $pgbouncer;
	for my $mode (qw(session transaction))
	{
		mkdir "$dir/$mode" or die;
		write_file("$dir/$mode/users", qq("postgres" ""\n));
		write_file("$dir/$mode/ini", "[databases]\napp = host=" . $pg->socket_dir . " port=5432 dbname=app\n[pgbouncer]\nlisten_addr =\nlisten_port = 6432\n"
			  . "unix_socket_dir = $dir/$mode\nauth_type = trust\nauth_file = $dir/$mode/users\npool_mode = $mode\ndefault_pool_size = 4\n");
		my $bouncer = LlmqTest::Process->start("$dir/$mode/log", $pgbouncer, "$dir/$mode/ini");
		wait_for(sub { -e "$dir/$mode/.s.PGSQL.6432" }, 10, 'pgbouncer listens');
		my $worker = start_program($pg, conninfo => "host=$dir/$mode port=6432 dbname=app user=postgres",
			args => $mode eq 'session' ? [ '--pooler', 'session', '--poll-interval', 3600 ] : []);
		$pg->wait_for_programs(1);
		for my $number (1 .. 3)
		{
			my $job = $pg->submit(prompt => "Through it. [job:$mode$number]", idempotency_key => "$mode $number");
			is($pg->final_state($job, 20)->{state}, 'succeeded', "pool_mode = $mode: jobs run") if $number == 3;
			$pg->final_state($job, 20);
		}
		is(calls("${mode}1"), 1, 'once each');
		is($pg->sql('SELECT pid <> 0 FROM llmq.worker'), $mode eq 'session' ? 't' : 'f',
			$mode eq 'session' ? 'the program is known by its session' : 'the program has no session of its own');
		if ($mode eq 'transaction')
		{
			like($worker->log_text, qr/goes through a pooler: new jobs are looked for once a second/, 'it says what that means');
			my $beat = $pg->sql('SELECT heartbeat FROM llmq.worker');
			ok(wait_for(sub { $pg->sql("SELECT heartbeat > '$beat' FROM llmq.worker") eq 't' }, 20, 'a heartbeat'), 'and says that it is alive while it is idle');
		}
		is($worker->terminate, 0, 'the program ends well');
		$bouncer->end('INT');
	}
}

finish();
