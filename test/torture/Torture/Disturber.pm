# Torture::Disturber - what administrators and strangers do at the wrong time: one session each, that
# goes from one thing to the next.

package Torture::Disturber;

use strict;
use warnings;

use Time::HiRes qw(sleep);

use Torture::Chance;
use Torture::Ledger;
use Torture::Wire;

my @tables = map { "llmq.$_" } qw(job ready deferred blocked lease result attempt message message_pending
	message_deferred message_lease message_done dead_job cancelled_job worker_session recall answer idempotency dependency endpoint queue);

# Whoever waits for a lock keeps all others waiting behind.  A keeper knows that.
use constant PATIENCE => '200 ms';

# Of each role: its database, the mean time between two things, and what it does, with weights.
my %roles = (
	operator => { db => 'app', pause => 0.7,
		actions => [ redrive => 10, pause => 4, interrupt => 10, restart_worker => 2, configure => 6, check => 2, reload => 3 ] },
	keeper => { db => 'app', pause => 1.0,
		actions => [ vacuum_full => 4, reindex => 4, lock => 8, analyze => 2, checkpoint => 1 ] },
	historian => { db => 'app', pause => 0.5, actions => [ old_snapshot => 1 ] },
	stranger => { db => 'other', pause => 1.5, actions => [ recreate => 1, stranger_jobs => 3, drop_database => 1 ], without => 'drop_database' });

sub roles { return sort keys %roles }

sub new
{
	my ($class, $role, %options) = @_;
	return bless { %options, %{ $roles{$role} }, role => $role, chance => Torture::Chance->new($options{seed}, $role),
		ledger => Torture::Ledger->new("$options{dir}/$role.ledger") }, $class;
}

sub run
{
	my ($self) = @_;
	my $parent = getppid;
	my $stop = 0;
	local $SIG{TERM} = sub { $stop = 1 };
	until ($stop || getppid != $parent)
	{
		sleep $self->{chance}->wait($self->{pause});
		my $action = $self->{chance}->weighted(@{ $self->{actions} });
		$action = $self->{without} unless $self->is_connected;
		$self->$action if $action;
	}
	return;
}

sub is_connected
{
	my ($self) = @_;
	delete $self->{wire} if $self->{wire} && $self->{wire}->is_lost;
	return 1 if $self->{wire};
	$self->{wire} = Torture::Wire->connect($self->{socket_dir}, $self->{db}) // return 0;
	$self->sql("SET lock_timeout = '@{[ PATIENCE ]}'");
	return 1;
}

# Whether a statement works is nothing to rely on here; undef if it does not.
sub sql
{
	my ($self, $sql) = @_;
	my $wire = $self->{wire} // return;
	my $reply = $wire->query($sql) // return;
	$self->{ledger}->write(wrong => "$self->{role}: $reply->{message}: $sql") if $reply->{sqlstate} =~ /^XX/;
	return $reply->{sqlstate} eq '00000' ? $reply : undef;
}

# -- the operator ---------------------------------------------------------------

sub redrive { my ($self) = @_; $self->sql("SELECT llmq.redrive_queue('torture', NULL, @{[ $self->{chance}->below(20) ]})"); return }

sub pause
{
	my ($self) = @_;
	$self->sql("UPDATE llmq.queue SET paused = true WHERE name = 'torture'");
	sleep $self->{chance}->between(0, 1);
	$self->sql("UPDATE llmq.queue SET paused = false WHERE name = 'torture'");
	return;
}

# Cancels or terminates a process of llmq or of a client, as pg_cancel_backend and the like do.
sub interrupt
{
	my ($self) = @_;
	my $how = $self->{chance}->one_of('pg_cancel_backend', 'pg_terminate_backend');
	my $which = $self->{chance}->one_of('llmq worker', 'llmq callback worker', 'llmq launcher', 'client backend');
	$self->sql("SELECT $how(pid) FROM pg_stat_activity WHERE backend_type = '$which' AND pid <> pg_backend_pid() ORDER BY pid LIMIT 1");
	return;
}

sub restart_worker
{
	my ($self) = @_;
	$self->sql('SELECT llmq.stop_worker()');
	sleep $self->{chance}->between(0, 1);
	$self->sql('SELECT llmq.start_worker()');
	return;
}

sub configure
{
	my ($self) = @_;
	my $limit = $self->{chance}->one_of(5, 20, 50);
	my $table = $self->{chance}->one_of(qw(queue endpoint));
	$self->sql("UPDATE llmq.$table SET max_in_flight = $limit");
	return;
}

# What must hold at any moment; leases may be overdue while their workers are stopped.
sub check
{
	my ($self) = @_;
	my $reply = $self->sql('SELECT * FROM llmq_internal.check_jobs() UNION ALL SELECT * FROM llmq_internal.check_answers() UNION ALL SELECT * FROM llmq_internal.check_outbox_messages()') // return;
	$self->{ledger}->write(wrong => "check() amid it all: @{[ map { $_ // '' } @{$_} ]}") for @{ $reply->{rows} };
	return;
}

sub reload { my ($self) = @_; $self->sql('SELECT pg_reload_conf()'); return }

# -- the keeper -----------------------------------------------------------------

sub vacuum_full { my ($self) = @_; $self->sql('VACUUM FULL ' . $self->{chance}->one_of(@tables)); return }
sub analyze     { my ($self) = @_; $self->sql('VACUUM (ANALYZE) ' . $self->{chance}->one_of(@tables)); return }
sub checkpoint  { my ($self) = @_; $self->sql('CHECKPOINT'); return }

sub reindex
{
	my ($self) = @_;
	my $how = $self->{chance}->is(0.5) ? 'CONCURRENTLY ' : '';
	$self->sql("REINDEX TABLE $how" . $self->{chance}->one_of(@tables));
	return;
}

sub lock
{
	my ($self) = @_;
	my $mode = $self->{chance}->one_of('SHARE', 'EXCLUSIVE', 'ACCESS EXCLUSIVE');
	my $table = $self->{chance}->one_of(@tables, 'pg_extension');
	my $time = $self->{chance}->between(0, 1.5);
	$self->sql("BEGIN; LOCK TABLE $table IN $mode MODE; SELECT pg_sleep($time); COMMIT");
	return;
}

# -- the historian --------------------------------------------------------------

sub old_snapshot
{
	my ($self) = @_;
	my $time = $self->{chance}->wait(5);
	$self->sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM llmq.ready; SELECT pg_sleep($time); COMMIT");
	return;
}

# -- the stranger, in another database ------------------------------------------

sub recreate
{
	my ($self) = @_;
	$self->sql('DROP EXTENSION IF EXISTS llmq CASCADE');
	$self->sql("CREATE EXTENSION llmq; $self->{stranger_endpoint}");
	return;
}

sub stranger_jobs
{
	my ($self) = @_;
	my $name = 'stranger' . ++$self->{count};
	$self->sql("SELECT count(llmq.submit(prompt => 'Hello. [job:stranger]', idempotency_key => '$name.' || n)) FROM generate_series(1, 20) AS n");
	return;
}

# Drops the database and makes it again; also one that a kill in the midst of that has left invalid or gone.
sub drop_database
{
	my ($self) = @_;
	$self->{wire}->disconnect if $self->{wire};
	delete $self->{wire};
	my $wire = Torture::Wire->connect($self->{socket_dir}, 'postgres') // return;
	$wire->query('DROP DATABASE IF EXISTS other');
	$wire->query('CREATE DATABASE other');
	$wire->disconnect;
	return;
}

1;
