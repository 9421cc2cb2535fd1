# Writes the documents anew, in the copied tree where it runs: the outputs of their examples, and what the
# benches have shown.

use strict;
use warnings;

use Examples qw(regenerate);
use LlmqTest;
use LlmqTest::Documents;
use Report;

my ($texts) = regenerate();
LlmqTest::Documents::write_file($_, $texts->{$_}) for keys %{$texts};
Report::write_papers();
LlmqTest::leave(1);
