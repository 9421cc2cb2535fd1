# The owner of the extension is no superuser any more, and a member of nothing: everything runs on.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1, conf => { 'llmq.poll_interval' => '300ms' });
$pg->create_database('app');
$pg->sql('CREATE ROLE dba SUPERUSER; CREATE ROLE web; SET ROLE dba; CREATE EXTENSION llmq; RESET ROLE');
$pg->sql("SELECT llmq.grant_submit('web'); GRANT CREATE ON SCHEMA public TO web");
$pg->sql('ALTER ROLE dba NOSUPERUSER');
$pg->endpoint(main => $provider);
$pg->start_programs if $pg->has_programs;

my $first = $pg->wait_for_worker;
$pg->kill_worker($first);
my $second = $pg->wait_for_worker;
isnt($second, $first, 'a worker starts, and another one when it is killed');
ok(wait_for(sub { $pg->sql("SELECT count(*) FROM llmq.worker WHERE state = 'running' AND pid = $second") }, 20, "it says hello"), "and llmq.worker shows it");

my $web = $pg->session;
$web->query('SET ROLE web');
$web->query(q{CREATE TABLE public.done (job_id uuid, by name);
	CREATE FUNCTION public.note(outcome jsonb) RETURNS void LANGUAGE sql
	AS 'INSERT INTO public.done VALUES ((outcome ->> ''job_id'')::uuid, current_user)'});
my $job = $web->query(q{SELECT job_id FROM llmq.submit('Hello. [job:one]', 'one', on_complete => 'public.note', metadata => '{"mine": true}')})->{out};
like($web->query("CALL llmq.wait('$job')")->{out}, qr/"state": "succeeded"/, 'who submitted can wait for the job, which succeeds');
like($web->query("CALL llmq.wait('$job')")->{out}, qr/"mine": true/, 'and is shown it in full');
is($pg->sql('SELECT by FROM public.done'), 'web', 'its on_complete ran as who submitted it');
my $later = $web->query(q{SELECT job_id FROM llmq.submit('Later.', 'later', run_at => '2100-01-01')})->{out};
is($web->query("SELECT string_agg(event, ' ') FROM llmq.explain('$later')")->{out}, 'submitted scheduled', 'explain says what a job waits for');
is($web->query("SELECT llmq.cancel('$later')")->{out}, 't', 'it can be cancelled');
is($web->query('SELECT count(*) FROM llmq.result')->{out}, 1, 'its results are seen');
is($pg->sql('SELECT llmq.prune()'), 0, 'retention has nothing to delete');

finish();
