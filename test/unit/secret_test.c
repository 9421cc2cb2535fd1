/*
 * secret_test.c
 *		Where the secret of a name is found, and which files are not taken for one.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/secret.h"
#include "tap.h"

static char directory[] = "/tmp/llmq-secret-XXXXXX";
static LlmqArena *arena;
static char error[256];

static const char *
secret_of(const char *name, const char *where)
{
	llmq_arena_destroy(arena);
	arena = llmq_arena_create(4 * LLMQ_SECRET_MAX_BYTES);
	error[0] = '\0';
	return llmq_secret_read(arena, where, name, error, sizeof(error));
}

static const char *
path_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return path;
}

static void
write_file(const char *name, const char *bytes, size_t len, mode_t mode)
{
	int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC, mode);

	if (write(fd, bytes, len) != (ssize_t) len || fchmod(fd, mode) != 0)
		printf("Bail out! no file\n");
	close(fd);
}

static void
check_refused(const char *name, const char *words, const char *sentence)
{
	if (!ok(secret_of(name, directory) == NULL && strstr(error, words) != NULL, "%s", sentence))
		printf("# error: %s\n", error);
	unlink(path_of(name));
	rmdir(path_of(name));
}

static void
test_files(void)
{
	static char bytes[LLMQ_SECRET_MAX_BYTES];

	write_file("key", " s3cret \r\n\n", 11, 0600);
	is_string(secret_of("key", directory), " s3cret",
			  "the white space behind a secret in a file is none of it");
	unlink(path_of("key"));
	memset(bytes, 'x', sizeof(bytes));
	write_file("key", bytes, sizeof(bytes) - 1, 0400);
	is_int((int64_t) strlen(secret_of("key", directory)), LLMQ_SECRET_MAX_BYTES - 1,
		   "a long secret is read whole");
	unlink(path_of("key"));
	write_file("key", bytes, sizeof(bytes), 0600);
	check_refused("key", "too long", "a longer one is refused, not cut");
	write_file("key", "\n \n", 3, 0600);
	check_refused("key", "empty", "a file of white space has no secret");
	write_file("key", "s", 1, 0640);
	check_refused("key", "mode to 600", "a file that a group may read is refused");
	write_file("key", "s", 1, 0602);
	check_refused("key", "mode to 600", "as is one that others may write");
	mkdir(path_of("key"), 0700);
	check_refused("key", "not a regular file", "a folder is no secret");
	mkfifo(path_of("key"), 0600);
	check_refused("key", "not a regular file", "a pipe is none, and nobody waits for its writer");
	(void) !symlink("key", path_of("key"));
	check_refused("key", "could not open", "a file that cannot be opened is said to be so");
}

static void
test_variables(void)
{
	setenv("LLMQ_SECRET_KEY_1", "from outside", 1);
	setenv("LLMQ_SECRET_NONE", "", 1);
	is_string(secret_of("key_1", NULL), "from outside", "without a folder, a variable is read");
	is_string(secret_of("key_1", ""), "from outside", "which no folder means too");
	is_string(secret_of("key_1", directory), "from outside", "and where there is no such file");
	write_file("key_1", "s", 1, 0600);
	is_string(secret_of("key_1", directory), "s", "a file comes before a variable");
	unlink(path_of("key_1"));
	check_refused("none", "LLMQ_SECRET_NONE", "an empty variable is no secret");
	check_refused("other", "LLMQ_SECRET_OTHER", "without one, an error says where it could be");
}

static void
test_names(void)
{
	char name[65];

	check_refused("", "not a valid name", "no text is no name");
	check_refused("../passwd", "not a valid name", "a name leaves no folder");
	check_refused("Key", "not a valid name", "a name has no capitals");
	memset(name, 'a', 64);
	name[64] = '\0';
	check_refused(name, "not a valid name", "nor 64 characters");
	name[63] = '\0';
	check_refused(name, "has no file", "but 63");
}

int
main(void)
{
	if (mkdtemp(directory) == NULL)
		return 1;
	test_files();
	test_variables();
	test_names();
	rmdir(directory);
	llmq_arena_destroy(arena);
	return tap_done();
}
