# LlmqTest::Clock - a time of day that a test sets, for the processes that are started with it.
#
#     my $clock = LlmqTest::Clock->new;
#     $pg->start($clock->wrap);
#     $clock->set(3600);      # the server believes that it is an hour later, at once
#
# Only the time of day is shifted; timeouts and waits go by the monotonic clock, as in a server whose
# clock is set.

package LlmqTest::Clock;

use strict;
use warnings;

use LlmqTest;

my $source = <<'END';
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static long
offset(void)
{
	static volatile long *shared = NULL;

	if (shared == NULL)
		shared = mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, open(getenv("CLOCK_OFFSET"), O_RDONLY | O_CLOEXEC), 0);
	return *shared;
}

int
clock_gettime(clockid_t id, struct timespec *now)
{
	int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(id, now);

	if (id == CLOCK_REALTIME)
		now->tv_sec += offset();
	return result;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	now->tv_sec = t.tv_sec;
	now->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *result)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	if (result != NULL)
		*result = t.tv_sec;
	return t.tv_sec;
}
END

# Builds the library that shifts the time by the number of seconds in a file.
sub new
{
	my ($class) = @_;
	my $path = test_dir() . '/clock';
	open(my $file, '>', "$path.c") or die "$path.c: $!\n";
	print {$file} $source;
	close $file;
	LlmqTest::Cluster::run('gcc', '-shared', '-fPIC', '-o', "$path.so", "$path.c");
	my $self = bless { library => "$path.so", offset => "$path.offset" }, $class;
	$self->set(0);
	return $self;
}

# What a process must be started with.
sub wrap
{
	my ($self) = @_;
	return (LlmqTest::Cluster::preload($self->{library}), "CLOCK_OFFSET=$self->{offset}");
}

# Shifts the time by so many seconds against the real one.
sub set
{
	my ($self, $seconds) = @_;
	open(my $file, -e $self->{offset} ? '+<' : '>', $self->{offset}) or die "$self->{offset}: $!\n";
	syswrite $file, pack('q', $seconds);
	close $file;
	return;
}

1;
