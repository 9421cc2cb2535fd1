/*
 * machine_test.c
 *		What the machine gives: clocks that run, open files, chance.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/machine.h"
#include "tap.h"

static void
limit_files(rlim_t now, rlim_t at_most)
{
	struct rlimit limit = {now, at_most};

	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		printf("Bail out! the limit of open files cannot be set\n");
}

/* What was lowered once cannot be raised again: from many to few. */
static void
test_connections(void)
{
	struct rlimit limit;

	limit_files(64, 300);
	is_int(llmq_machine_connections(200, 50), 200, "as many connections as are wanted");
	getrlimit(RLIMIT_NOFILE, &limit);
	is_int((int64_t) limit.rlim_cur, 300, "for which the soft limit of open files is raised");
	is_int(llmq_machine_connections(400, 50), 250, "fewer where the hard limit is in the way");
	limit_files(100, 100);
	is_int(llmq_machine_connections(400, 100), 1, "and one where nothing is left");
}

static void
test_clock(void)
{
	LlmqTime before = llmq_machine_clock();
	LlmqTime after = llmq_machine_clock();

	ok(before.mono_us > 0 && after.mono_us >= before.mono_us,
	   "the monotonic clock never goes back");
	ok(after.wall_us > INT64_C(1700000000) * 1000000, "the other one knows what year it is");
}

/* From here on the kernel refuses what machine.c asks of it; false: that cannot be had. */
static bool
refuse_all(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getrandom, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
		   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void
test_refusing_kernel(void)
{
	uint64_t seed;
	int64_t wall_us;

	if (!refuse_all())
	{
		printf("# no seccomp here: nothing is known of a kernel that refuses\n");
		return;
	}
	is_int(llmq_machine_connections(400, 50), 400, "a limit that nobody tells is none");
	seed = llmq_machine_seed();
	wall_us = llmq_machine_clock().wall_us;
	while (llmq_machine_clock().wall_us == wall_us)
		;
	ok(seed != 0 && seed != llmq_machine_seed(), "without chance the time makes a seed");
}

int
main(void)
{
	test_connections();
	test_clock();
	ok(llmq_machine_seed() != llmq_machine_seed(), "no seed is like the one before");
	test_refusing_kernel();
	return tap_done();
}
