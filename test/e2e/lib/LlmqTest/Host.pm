# LlmqTest::Host - a machine of its own, as far as the network is concerned, and what goes wrong between it and us.
#
# enter_network() moves the test into a user namespace and a network of its own, where it may do as it
# likes without being root: the server, the provider and the test share the address in ADDRESS, and
# each host is one more network at the end of a cable.  All of this lives as long as the processes do:
# nothing is to be cleaned up, and nothing of the machine's own network is touched.

package LlmqTest::Host;

use strict;
use warnings;

use LlmqTest::Process;

# Where the hosts find the server and the provider.
use constant ADDRESS => '10.87.0.1';
use constant HOSTS => '10.87.0.0/16';

my @enter = qw(unshare --user --map-current-user --keep-caps --net --);
my $count = 0;

# Starts the test again where it may have hosts, once.  Returns a text if there is no such place.
sub enter_network
{
	if (!$ENV{LLMQ_IN_NETWORK})
	{
		my $trial = `@enter sh -c 'unshare --net true && ip link set lo up && nft list ruleset' 2>&1`;
		return "no user namespace with networks and nftables can be made here: $trial" if $?;
		local $ENV{LLMQ_IN_NETWORK} = 1;
		exec(@enter, $^X, (map { "-I$_" } @INC), $0, @ARGV) or die "unshare: $!\n";
	}
	run(qw(ip link set lo up));
	run(qw(ip address add), ADDRESS . '/32', qw(dev lo));
	return;
}

sub run { return LlmqTest::Cluster::run(@_) }

# A host is held by a process that sleeps; its log is $log.
sub new
{
	my ($class, $log) = @_;
	my $number = ++$count;
	my $self = bless { log => $log, cable => "llmq$number" }, $class;
	$self->{process} = LlmqTest::Process->start($log, qw(unshare --net -- sleep infinity));
	my $pid = $self->{process}->pid;
	my $ours = readlink "/proc/$$/ns/net";
	LlmqTest::wait_for(sub { (readlink "/proc/$pid/ns/net") ne $ours && !is_unfinished($pid) }, 20, 'a host has a network');
	$self->{wrap} = [ 'nsenter', "--net=/proc/$pid/ns/net", '--' ];
	run(qw(ip link add), $self->{cable}, qw(type veth peer name cable netns), $pid);
	run(qw(ip address add), "10.87.$number.1/24", 'dev', $self->{cable});
	run(qw(ip link set), $self->{cable}, 'up');
	$self->run_inside(@{$_}) for [qw(ip link set lo up)], [ qw(ip address add), "10.87.$number.2/24", qw(dev cable) ],
		[qw(ip link set cable up)], [ qw(ip route add default via), "10.87.$number.1" ];
	return $self;
}

# Whether the process is still on its way to become the sleeper.
sub is_unfinished
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/comm") or return 1;
	return (<$file> // '') ne "sleep\n";
}

# The words before a command line that have it run on this host.
sub wrap { return $_[0]{wrap} }

sub run_inside { my ($self, @command) = @_; return run(@{ $self->{wrap} }, @command) }

# -- faults: each holds until heal() ------------------------------------------------

# Nothing gets through any more, in either direction.
sub cut { my ($self) = @_; return $self->disturb("iifname $self->{cable} drop", "oifname $self->{cable} drop") }

# So many packets of a hundred are lost, in either direction.
sub lose
{
	my ($self, $percent) = @_;
	return $self->disturb(map { "$_ $self->{cable} numgen random mod 100 < $percent drop" } qw(iifname oifname));
}

# Connections to the port are reset, new ones and those that are there.
sub refuse
{
	my ($self, $port) = @_;
	return $self->disturb("iifname $self->{cable} tcp dport $port reject with tcp reset", ());
}

sub disturb
{
	my ($self, $in, $out) = @_;
	my $table = $self->{cable};
	run('nft', join '; ', "add table inet $table",
		"add chain inet $table in { type filter hook input priority 0; }",
		"add chain inet $table out { type filter hook output priority 0; }",
		"add rule inet $table in $in", defined $out ? "add rule inet $table out $out" : ());
	return;
}

sub heal { my ($self) = @_; run('nft', "delete table inet $self->{cable}"); return }

sub last_words { return '' }

sub stop { my ($self) = @_; $self->{process}->end('KILL', 10); return }

1;
