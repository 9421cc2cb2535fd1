# What a worker lives through: the extension made anew under it, a statement that is cancelled.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use LlmqTest;
use Test::More;

my $provider = start_provider();
my $pg = start_cluster(preload => 1);

# -- the extension is made anew -------------------------------------------------

$pg->create_database('anew', extension => 1, provider => $provider);
my $worker = $pg->wait_for_worker;
# Far enough, and long enough ago, that nothing new is expected where seqs begin.
for my $number (1 .. 5)
{
	$pg->final_state($pg->submit(prompt => "Before. [job:before-$number]", idempotency_key => "before-$number"));
}
$pg->sql('SET lock_timeout = 0; BEGIN; DROP EXTENSION llmq CASCADE; CREATE EXTENSION llmq; COMMIT');
$pg->endpoint(main => $provider);
for my $number (1 .. 2)
{
	my $job = $pg->submit(prompt => "After. [job:after-$number]", idempotency_key => "after-$number");
	is($pg->final_state($job)->{state}, 'succeeded', "job $number of an extension that was dropped and created in one transaction succeeds");
}

finish();
