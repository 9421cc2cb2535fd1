# Nginx - a provider that is never the bottleneck: nginx with a fixed answer, at once or late.
#
# Its files are in a folder of its own, and it is a child of the bench, in the foreground.

package Nginx;

use strict;
use warnings;

use IO::Socket::INET;
use LlmqTest;
use LlmqTest::Process;

my $MODULE = '/usr/lib/nginx/modules/ngx_http_echo_module.so';
my $ANSWER = '{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"stand-in","choices":[{"index":0,'
  . '"message":{"role":"assistant","content":"All is well, and this is what a short answer looks like."},"finish_reason":"stop"}],'
  . '"usage":{"prompt_tokens":12,"completion_tokens":12,"total_tokens":24}}';

# A port that is free now.  nginx cannot be told to take any.
sub free_port
{
	my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1) or die "no port: $!\n";
	return $socket->sockport;
}

sub start
{
	my ($class) = @_;
	my $dir = LlmqTest::test_dir() . '/nginx';
	mkdir $dir or die "$dir: $!\n";
	my $self = bless { dir => $dir, port => free_port() }, $class;
	open(my $file, '>', "$dir/nginx.conf") or die "$dir/nginx.conf: $!\n";
	print {$file} $self->conf;
	close $file;
	$self->{process} = LlmqTest::Process->start("$dir/output", '/usr/sbin/nginx', '-p', $dir, '-e', "$dir/error", '-c', "$dir/nginx.conf");
	LlmqTest::wait_for(sub {
		$self->{process}->is_running or die "nginx did not start: " . slurp("$dir/output");
		IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port});
	}, 20, 'nginx takes connections');
	return $self;
}

sub conf
{
	my ($self) = @_;
	my $late = join '', map { "location /after-$_ { echo_sleep $_; echo -n '$ANSWER'; }\n" } 1, 10;
	return <<"END";
daemon off;
master_process off;
load_module $MODULE;
pid $self->{dir}/pid;
worker_rlimit_nofile 65536;
events { worker_connections 32768; }
http {
	default_type application/json;
	keepalive_requests 10000000;
	keepalive_timeout 600;
	reset_timedout_connection on;
	log_format times '\$msec \$request_time \$status';
	access_log $self->{dir}/access times;
	client_body_temp_path $self->{dir}/body;
	proxy_temp_path $self->{dir}/proxy;
	fastcgi_temp_path $self->{dir}/fastcgi;
	uwsgi_temp_path $self->{dir}/uwsgi;
	scgi_temp_path $self->{dir}/scgi;
	server {
		listen 127.0.0.1:$self->{port} backlog=4096;
		location / { return 200 '$ANSWER'; }
		$late
	}
}
END
}

# The base URL of an endpoint that answers after some seconds: 0, 1 or 10.
sub url { my ($self, $after) = @_; return "http://127.0.0.1:$self->{port}/" . ($after ? "after-$after" : 'now') }

# When each request came, in seconds since the epoch, in the order of the answers; and forgets them.
sub take_times
{
	my ($self) = @_;
	my $text = slurp("$self->{dir}/access");
	my $from = $self->{read} // 0;
	$self->{read} = length $text;
	my @times;
	for (split /\n/, substr $text, $from)
	{
		my ($end, $took, $status) = split;
		push @times, $end - $took if $status == 200;
	}
	return @times;
}

sub slurp
{
	my ($path) = @_;
	open(my $file, '<', $path) or return '';
	local $/;
	return <$file> // '';
}

sub pid { return $_[0]{process}->pid }
sub stop { my ($self) = @_; $self->{process}->end('QUIT', 5); return }

1;
