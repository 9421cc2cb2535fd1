# LlmqTest::Cluster - a throwaway PostgreSQL server with the staged llmq in reach.
#
# With HOST=program in the environment its workers are llmq-worker programs, as many as llmq.workers
# says, started with each database that has the extension.
#
# No TCP, a socket in the data folder's parent, a child of the test.  sql(), row() and rows() go
# through one session a database that is kept open, and made anew when the server was restarted.

package LlmqTest::Cluster;

use strict;
use warnings;

use JSON::PP ();
use Test::More;

use LlmqTest::Process;
use LlmqTest::Session;

# Whose server and programs these are.
our $pg_config = $ENV{PG_CONFIG} || 'pg_config';
my %config;

my $json = JSON::PP->new->utf8->canonical->allow_nonref->boolean_values(0, 1);

# Asks pg_config, once for each word.
sub config
{
	my ($word) = @_;
	return $config{$pg_config}{$word} //= do {
		chomp(my $value = `$pg_config --$word`);
		$value or die "$pg_config --$word says nothing\n";
		$value;
	};
}

sub program { my ($name) = @_; return config('bindir') . "/$name" }

sub major { return config('version') =~ /(\d+)/ ? $1 : die }

# -- the server ---------------------------------------------------------------

sub new
{
	my ($class, $dir, %options) = @_;
	my $self = bless { dir => $dir, data => "$dir/data", log => "$dir/log", sessions => {} }, $class;
	mkdir $_, 0700 or die "$_: $!\n" for $dir, "$dir/secrets";
	if (my $template = $ENV{LLMQ_INITDB})
	{
		run('cp', '-a', $template, $self->{data});
	}
	else
	{
		init_data($self->{data}, '--data-checksums');
	}
	my %conf = (
		listen_addresses          => '',
		unix_socket_directories   => $dir,
		port                      => 5432,
		fsync                     => 'off',
		shared_buffers            => '32MB',
		max_worker_processes      => 16,
		log_line_prefix           => '%m [%p] %b: ',
		log_checkpoints           => 'off',
		'llmq.secrets_directory'  => "$dir/secrets",
		stage_settings($options{debug} ? $ENV{LLMQ_STAGE_DEBUG} : $ENV{LLMQ_STAGE}),
		($options{preload} ? (shared_preload_libraries => 'llmq') : ()),
		%{ $options{conf} // {} });
	if (($ENV{HOST} // '') eq 'program')
	{
		$self->{programs} = { %conf };
		$conf{'llmq.workers'} = 0;
	}
	$self->set(%conf);
	return $self;
}

sub init_data
{
	my ($data, @options) = @_;
	run(program('initdb'), '-D', $data, '--no-sync', '-A', 'trust', '-U', 'postgres', '-E', 'UTF8', '--locale=C', @options);
	return;
}

# Returns the settings that make a server find the extension that is staged there.
sub stage_settings
{
	my ($stage) = @_;
	$stage or return ();
	my %settings = (dynamic_library_path => $stage . config('pkglibdir') . ':$libdir');
	if (major() >= 18)
	{
		$settings{extension_control_path} = $stage . config('sharedir') . ':$system';
	}
	else
	{
		$settings{extension_destdir} = $stage;
	}
	return %settings;
}

# Runs a command to its end, quietly; dies with its output if it fails.
sub run
{
	my (@command) = @_;
	open(my $pipe, '-|', 'sh', '-c', 'exec "$@" 2>&1', 'sh', @command) or die "$command[0]: $!\n";
	my $output = do { local $/; <$pipe> };
	close $pipe or die "@command: " . ($output // '');
	return $output;
}

# Appends settings to postgresql.conf.
sub set
{
	my ($self, %conf) = @_;
	open(my $file, '>>', "$self->{data}/postgresql.conf") or die "$self->{data}/postgresql.conf: $!\n";
	for my $name (sort keys %conf)
	{
		print {$file} "$name = '", $conf{$name} =~ s/'/''/gr, "'\n";
	}
	close $file;
	return;
}

# The words before a command that has libraries preloaded, after those that LLMQ_PRELOAD in the
# environment says (test/asan/run).
sub preload
{
	my (@libraries) = @_;
	unshift @libraries, $ENV{LLMQ_PRELOAD} if $ENV{LLMQ_PRELOAD};
	@libraries or return ();
	my @options = $ENV{ASAN_OPTIONS} ? ("ASAN_OPTIONS=$ENV{ASAN_OPTIONS}:detect_leaks=0") : ();
	return ('env', 'LD_PRELOAD=' . join(':', @libraries), @options);
}

# Starts the server and waits until it takes connections.  @wrap goes before the command line
# (prlimit and the like), and of the programs that stand for its workers.
sub start
{
	my ($self, @wrap) = @_;
	$self->{wrap} = \@wrap;
	LlmqTest::wait_for(sub { $self->try_start(@wrap) }, 60, 'the server is started');
	return;
}

# Starts the server once; false if children of a killed postmaster are still leaving.
sub try_start
{
	my ($self, @wrap) = @_;
	my $before = $self->log_size;
	my $process = LlmqTest::Process->start($self->{log}, preload(), @wrap, program('postgres'), '-D', $self->{data});
	$self->{process} = $process;
	LlmqTest::wait_for(sub { $self->postmaster_status =~ /ready/ || !$process->is_running }, 60, 'the server is up');
	return 1 if $process->is_running;
	$self->log_text($before) =~ /pre-existing shared memory/ or die "the server does not start\n";
	return 0;
}

# Returns line 8 of postmaster.pid of the server that we started, or ''.
sub postmaster_status
{
	my ($self) = @_;
	open(my $file, '<', "$self->{data}/postmaster.pid") or return '';
	my @lines = <$file>;
	return '' unless @lines >= 8 && $lines[0] == ($self->{process}->pid // 0);
	return $lines[7];
}

# Stops the server: smart, fast or immediate.  Returns its wait status.
sub stop
{
	my ($self, $mode) = @_;
	my $process = delete $self->{process} or return;
	$self->disconnect_all;
	my %signal = (smart => 'TERM', fast => 'INT', immediate => 'QUIT');
	return $process->end($signal{ $mode // $ENV{LLMQ_STOP_MODE} // 'immediate' }, 60);
}

sub restart { my ($self, $mode) = @_; $self->stop($mode // 'fast'); $self->start; return }

sub reload { my ($self) = @_; kill 'HUP', $self->pid; return }

# Kills the postmaster itself; its children leave by themselves.  Returns its wait status.
sub kill9
{
	my ($self) = @_;
	my $status = (delete $self->{process})->end('KILL');
	$self->disconnect_all;
	return $status;
}

sub socket_dir { return $_[0]{dir} }
sub data_dir   { return $_[0]{data} }
sub pid        { return $_[0]{process}->pid }
sub is_running { return $_[0]{process} && $_[0]{process}->is_running }

sub log_text
{
	my ($self, $from) = @_;
	open(my $file, '<', $self->{log}) or return '';
	seek $file, $from // 0, 0;
	local $/;
	return <$file> // '';
}

sub log_size { return -s $_[0]{log} || 0 }

sub last_words
{
	my ($self) = @_;
	my @lines = split /^/, $self->log_text;
	return join '', 'the last lines of the server log:', "\n", @lines > 40 ? @lines[ -40 .. -1 ] : @lines;
}

# -- SQL ----------------------------------------------------------------------

sub psql_command
{
	my ($self, $db) = @_;
	return (program('psql'), '-h', $self->{dir}, '-p', 5432, '-U', 'postgres', '-d', $db);
}

# Says, in libpq's words, where a database is.
sub conninfo
{
	my ($self, $db, $user) = @_;
	return "host=$self->{dir} port=5432 user=" . ($user // 'postgres') . ' dbname=' . ($db // $self->{db});
}

# Opens a session of its own.
sub session
{
	my ($self, $db) = @_;
	return LlmqTest::Session->new($self->psql_command($db // $self->{db} // 'postgres'));
}

# The database that statements go to when none is named.
sub use_database { my ($self, $db) = @_; $self->{db} = $db; return $db }

# Lets go of the session that sql() keeps, so that a database can be dropped.
sub disconnect
{
	my ($self, $db) = @_;
	my $session = delete $self->{sessions}{ $db // $self->{db} // 'postgres' };
	$session->disconnect if $session;
	return;
}

sub disconnect_all { my ($self) = @_; $self->disconnect($_) for keys %{ $self->{sessions} }; return }

# Runs SQL and returns {out, err, sqlstate}.  A session that was lost is replaced first.
sub query
{
	my ($self, $sql, $db) = @_;
	$db //= $self->{db} // 'postgres';
	my $kept = \$self->{sessions}{$db};
	$$kept = $self->session($db) if !$$kept || $$kept->is_lost;
	return $$kept->query($sql);
}

# Runs SQL and returns what it printed; dies when it fails.
sub sql
{
	my ($self, $sql, $db) = @_;
	my $result = $self->query($sql, $db);
	die "$sql\n$result->{err}\n" if ($result->{sqlstate} // '') ne '00000';
	return $result->{out};
}

# Returns the rows of a query as hashes; booleans are 0 and 1.
sub rows
{
	my ($self, $sql, $db) = @_;
	my $text = $self->sql("SELECT coalesce(json_agg(t), '[]') FROM ($sql) t", $db);
	return @{ $json->decode($text) };
}

sub row { my ($self, $sql, $db) = @_; return ($self->rows($sql, $db))[0] }

# Kills a process of the server, and waits until the server has noticed and answers again.
sub kill_backend
{
	my ($self, $pid) = @_;
	my $before = $self->log_size;
	kill 'KILL', $pid or die "there is no process $pid\n";
	LlmqTest::wait_for(sub { $self->log_text($before) =~ /was terminated by signal 9.*ready to accept connections/s },
		60, 'the server has restarted its processes');
	$self->disconnect_all;
	return;
}

# Kills a worker, whose session is given.  Another takes its place.
sub kill_worker
{
	my ($self, $session) = @_;
	return $self->kill_backend($session) unless $self->{programs};
	my $programs = $self->{by_database}{ $self->{db} };
	my $process = $self->worker_process($session);
	$_->kill9 for grep { $_->pid == $process } @{$programs};
	@{$programs} = grep { $_->is_running } @{$programs};
	LlmqTest::wait_for(sub { !grep { $_ == $session } $self->workers }, 20, 'its session has ended');
	$self->start_programs;
	return;
}

# Has the next process of llmq that comes to a debug point stop there (extension/debug_point.h).
sub arm
{
	my ($self, $point) = @_;
	open(my $file, '>', "$self->{data}/llmq_debug_point.$point") or die "$point: $!\n";
	close $file;
	return;
}

# Waits until a process stands still at a debug point, and returns its process id.
sub wait_for_point
{
	my ($self, $point, $limit) = @_;
	my $path = "$self->{data}/llmq_debug_point.$point.reached";
	return LlmqTest::wait_for(sub {
		open(my $file, '<', $path) or return 0;
		return (<$file> // '') =~ /^(\d+)\n/ ? $1 : 0;
	}, $limit // 20, "a process stops at $point");
}

# Lets the process that stands at a debug point go on, or forgets that it was killed there.
sub leave_point { my ($self, $point) = @_; unlink "$self->{data}/llmq_debug_point.$point.reached"; return }

# Makes all that was written so far durable, the asynchronous commits too.  A synchronous commit of
# our own does it: left alone, the last page of a transaction still open waits for the next
# checkpoint or snapshot record, 15 s and more.
sub flush
{
	my ($self) = @_;
	$self->sql(q{SELECT pg_logical_emit_message(true, 'llmq', 'flush')});
	return;
}

# Writes a value as an SQL literal; a reference becomes jsonb.
sub literal
{
	my ($value) = @_;
	return 'NULL' unless defined $value;
	return literal($json->encode($value) =~ s/^\s+//r) . '::jsonb' if ref $value;
	return q{'} . $value =~ s/'/''/gr . q{'};
}

# Creates a database and makes it the one in use.  Options: extension, provider (adds an endpoint).
sub create_database
{
	my ($self, $db, %options) = @_;
	$self->sql("CREATE DATABASE $db", 'postgres');
	$self->use_database($db);
	$self->sql('CREATE EXTENSION llmq') if $options{extension};
	$self->endpoint(main => $options{provider}) if $options{provider};
	$self->start_programs if $options{extension} && $self->{programs};
	return $db;
}

# Starts the programs that stand for the workers in the server, and returns them.
sub start_programs
{
	my ($self) = @_;
	my $conf = $self->{programs};
	return if ($conf->{'llmq.enabled'} // 'on') eq 'off';
	my $poll = ($conf->{'llmq.poll_interval'} // '5s') =~ /^(\d+) ?(ms|s)?\z/ ? ($2 // 'ms') eq 's' ? $1 : $1 / 1000 : die;
	my @programs = map {
		LlmqTest::start_program($self, name => "server-$_", log => $self->{log}, wrap => $self->{wrap},
			args => [ '--poll-interval', $poll, '--max-in-flight', $conf->{'llmq.max_in_flight'} // 1000 ]);
	} 1 .. $conf->{'llmq.workers'} // 1;
	push @{ $self->{by_database}{ $self->{db} } }, @programs;
	return @programs;
}

# Ends the workers of the database in use, and waits until they have left.
sub stop_workers
{
	my ($self) = @_;
	$_->is_running && $_->terminate for @{ delete $self->{by_database}{ $self->{db} } // [] };
	$self->sql('SELECT llmq.stop_worker()');
	LlmqTest::wait_for(sub { !$self->workers }, 20, 'the workers have left');
	return;
}

sub start_workers
{
	my ($self) = @_;
	$self->{programs} ? $self->start_programs : $self->sql('SELECT llmq.start_worker()');
	return;
}

# Drops a database.  A worker in the server steps aside by itself; a program is a client like others.
sub drop_database
{
	my ($self, $db) = @_;
	$_->is_running && $_->terminate for @{ delete $self->{by_database}{$db} // [] };
	$self->disconnect($db);
	$self->sql("DROP DATABASE $db", 'postgres');
	return;
}

# -- llmq ---------------------------------------------------------------------

# Stores a secret as the file that the worker reads.
sub secret
{
	my ($self, $name, $value) = @_;
	my $path = "$self->{dir}/secrets/$name";
	open(my $file, '>', $path) or die "$path: $!\n";
	chmod 0600, $path;
	print {$file} $value;
	close $file;
	return;
}

# Adds an endpoint that points to a provider.  Its breaker stays shut unless %columns says otherwise.
sub endpoint
{
	my ($self, $name, $provider, %columns) = @_;
	return $self->insert('endpoint', name => $name, api => 'openai_chat', url => $provider->url, model => 'stand-in',
		breaker_failures => 1_000_000, %columns);
}

sub insert
{
	my ($self, $table, %columns) = @_;
	my @names = sort keys %columns;
	$self->sql("INSERT INTO llmq.$table (" . join(', ', @names) . ') VALUES ('
		  . join(', ', map { literal($columns{$_}) } @names) . ')');
	return;
}

# Returns the call of llmq.submit with named arguments.
sub submit_call
{
	my (%arguments) = @_;
	return 'llmq.submit(' . join(', ', map { "$_ => " . literal($arguments{$_}) } sort keys %arguments) . ')';
}

# Submits a job and returns its job_id.
sub submit
{
	my ($self, %arguments) = @_;
	return $self->sql('SELECT job_id FROM ' . submit_call(%arguments));
}

# Waits until the job is final, and returns its row of job_status.
sub final_state
{
	my ($self, $job, $limit) = @_;
	return LlmqTest::wait_for(sub {
		$self->row('SELECT * FROM llmq.job_status WHERE job_id = ' . literal($job)
			  . " AND state IN ('succeeded', 'dead', 'cancelled')");
	}, $limit // 20, "job $job is final");
}

# Returns the process ids of the workers that serve a database, by the server's own view.
sub workers
{
	my ($self, $db) = @_;
	$db //= $self->{db};
	my $which = $self->{programs} ? q{application_name LIKE 'llmq-worker %'} : q{backend_type = 'llmq worker'};
	return map { $_->{pid} } $self->rows("SELECT pid FROM pg_stat_activity WHERE $which AND datname = "
		  . literal($db) . ' ORDER BY backend_start', 'postgres');
}

# Returns the process of a worker whose session is known: of a program that is another one.
sub worker_process
{
	my ($self, $session) = @_;
	return $session unless $self->{programs};
	my $name = $self->sql("SELECT substr(application_name, length('llmq-worker ') + 1) FROM pg_stat_activity WHERE pid = $session");
	my ($program) = grep { $_->name eq $name } @{ $self->{by_database}{ $self->{db} } };
	return $program->pid;
}

sub has_programs { return $_[0]{programs} ? 1 : 0 }

# Waits until so many programs work, and returns the names of all that do.
sub wait_for_programs
{
	my ($self, $count) = @_;
	return LlmqTest::wait_for(sub {
		my @names = map { $_->{name} } $self->rows(q{SELECT name FROM llmq.worker WHERE kind = 'program' AND state = 'running' ORDER BY name});
		@names == $count ? \@names : 0;
	}, 20, "$count programs work");
}

# Waits until the callback worker of the database runs, and returns its process id.
sub wait_for_callback_worker
{
	my ($self) = @_;
	return LlmqTest::wait_for(sub {
		$self->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'llmq callback worker' AND datname = current_database()});
	}, 20, 'a callback worker serves the database');
}

# Waits until a worker serves the database, and returns its process id.
sub wait_for_worker
{
	my ($self, $db) = @_;
	return LlmqTest::wait_for(sub { ($self->workers($db))[0] }, 20, 'a worker serves the database');
}

# Tests that no database with llmq in it has a broken invariant.
sub check
{
	my ($self) = @_;
	for my $db (map { $_->{datname} } $self->rows('SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate', 'postgres'))
	{
		my $there = $self->sql(q{SELECT count(*) FROM pg_proc WHERE proname = 'check' AND pronamespace = to_regnamespace('llmq')}, $db);
		my @broken = $there ? $self->rows('SELECT * FROM llmq.check()', $db) : ();
		$there and is($json->encode(\@broken), '[]', "llmq.check() finds nothing wrong in database $db");
		$self->disconnect($db);
	}
	return;
}

1;
