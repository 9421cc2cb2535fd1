# Parents that end while their children are being submitted: whichever transaction commits first, no
# child is forgotten.  Sessions play worker, clients and settler, so that each step waits for the one before.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $pg = start_cluster(preload => 1);
$pg->create_database('app', extension => 1);
$pg->wait_for_worker;
$pg->stop_workers;
$pg->sql('CREATE FUNCTION public.note(jsonb) RETURNS void LANGUAGE sql AS $$ $$');
my ($mover, $client) = map { $pg->session('app') } 1 .. 2;
my $id = $mover->query("SELECT worker_id FROM llmq.worker_hello(3, 'by hand', 'server', pg_backend_pid(), NULL)")->{out};

sub state_of { my ($job) = @_; return $pg->sql("SELECT state FROM llmq.job_status WHERE job_id = '$job'") }
sub claim { return $mover->query("SELECT count(job_id) FROM llmq.worker_claim($id, ARRAY(SELECT seq FROM llmq.ready))")->{out} }
sub look { return $pg->sql('SELECT llmq_internal.resolve_fresh(100)') }

# The statement with which a worker settles a job's first delivery.
sub settle
{
	my ($job) = @_;
	my $attempt = '{"attempt": 1, "started_at": 0, "outcome": "success", "billing": "none"}';
	return qq{SELECT verdict FROM llmq.worker_settle($id, '[{"job_id": "$job", "delivery": 1, "outcome": "succeeded", "text": "Hi",
		"response": "{}", "attempts": [$attempt]}]')};
}

# Submits a child of a parent, and has the parent leave its place by $leave between the child's submit and
# its commit; tests what becomes of the child.
sub race
{
	my ($name, $parent, $leave, $becomes) = @_;
	$client->query('BEGIN');
	my $child = $client->query("SELECT job_id FROM llmq.submit('Child.', 'child of $name', after => '{$parent}')")->{out};
	$mover->query('BEGIN');
	$mover->query($leave);
	$client->query('COMMIT');
	is(look(), 't', "$name: a child whose parent is on the move is left for the next look");
	is(state_of($child), 'blocked', "$name: it waits meanwhile");
	$mover->query('COMMIT');
	is(look(), 'f', "$name: the next look finds the parent where it has gone");
	is(state_of($child), $becomes, "$name: and the child does not wait any more");
	return $child;
}

my $parent = $pg->submit(prompt => 'Parent.', idempotency_key => 'running');
claim();
race('a parent that is settled', $parent, settle($parent), 'ready');

$parent = $pg->submit(prompt => 'Parent.', idempotency_key => 'answered', on_complete => 'public.note');
claim();
$mover->query(settle($parent));
is($pg->sql("SELECT count(*) FROM llmq.answer WHERE job_id = '$parent'"), 1, 'an answer waits for the settler');
race('a parent whose answer is settled', $parent, "SELECT role FROM llmq_internal.settler_settle('$parent')", 'ready');

$parent = $pg->submit(prompt => 'Parent.', idempotency_key => 'ready');
my $child = race('a ready parent that is cancelled', $parent, "SELECT llmq.cancel('$parent')", 'dead');
is($pg->sql("SELECT error_class FROM llmq.job_status WHERE job_id = '$child'"), 'dependency_failed', 'it died of its parent');

$parent = $pg->submit(prompt => 'Parent.', idempotency_key => 'deferred', run_at => '2100-01-01');
race('a scheduled parent that is cancelled', $parent, "SELECT llmq.cancel('$parent')", 'dead');

my $grandparent = $pg->submit(prompt => 'Grandparent.', idempotency_key => 'first', run_at => '2100-01-01');
$parent = $pg->sql("SELECT job_id FROM llmq.submit('Parent.', 'blocked', after => '{$grandparent}')");
look();
race('a blocked parent that is cancelled', $parent, "SELECT llmq.cancel('$parent')", 'dead');

# A parent that stays where it is holds nobody up, and one that ends later finds the child by itself.
$parent = $pg->submit(prompt => 'Parent.', idempotency_key => 'later');
claim();
$child = $pg->sql("SELECT job_id FROM llmq.submit('Child.', 'child of later', after => '{$parent}')");
is(look(), 'f', 'a child whose parent runs on is looked at once');
is(state_of($child), 'blocked', 'and waits');
$mover->query(settle($parent));
is(state_of($child), 'ready', 'until the parent is settled, which needs no further look');

finish();
