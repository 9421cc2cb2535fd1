/*
 * secret.c
 *		Finds the secret that belongs to a name.
 */
#include "base/secret.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_MAX_LENGTH 63

static const char *
read_variable(LlmqArena *arena, const char *name, char *error, size_t error_size);
static const char *
read_file(LlmqArena *arena, int fd, const char *name, char *error, size_t error_size);

/* Checks for [a-z0-9_]+, as the tables do, so that a name cannot lead out of the directory. */
static bool
is_name(const char *name)
{
	size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");

	return len > 0 && len <= NAME_MAX_LENGTH && name[len] == '\0';
}

const char *
llmq_secret_read(LlmqArena *arena, const char *directory, const char *name, char *error,
				 size_t error_size)
{
	const char *secret;
	char path[4096];
	int fd;

	if (!is_name(name))
	{
		snprintf(error, error_size, "\"%s\" is not a valid name for a secret", name);
		return NULL;
	}
	if (directory == NULL || directory[0] == '\0')
		return read_variable(arena, name, error, error_size);
	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return read_variable(arena, name, error, error_size);
	if (fd < 0)
	{
		snprintf(error, error_size, "could not open the file of secret \"%s\": %s", name,
				 strerror(errno));
		return NULL;
	}
	secret = read_file(arena, fd, name, error, error_size);
	close(fd);
	return secret;
}

static const char *
read_variable(LlmqArena *arena, const char *name, char *error, size_t error_size)
{
	char variable[sizeof("LLMQ_SECRET_") + NAME_MAX_LENGTH];
	const char *value;

	snprintf(variable, sizeof(variable), "LLMQ_SECRET_%s", name);
	for (char *c = variable; *c != '\0'; c++)
		*c = (char) toupper((unsigned char) *c);
	value = getenv(variable);
	if (value == NULL || value[0] == '\0')
	{
		snprintf(error, error_size,
				 "secret \"%s\" has no file in llmq.secrets_directory, and no value in %s", name,
				 variable);
		return NULL;
	}
	return llmq_arena_strdup(arena, value);
}

static const char *
read_file(LlmqArena *arena, int fd, const char *name, char *error, size_t error_size)
{
	struct stat status;
	char bytes[LLMQ_SECRET_MAX_BYTES];
	ssize_t len;
	char *secret;

	if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
	{
		snprintf(error, error_size, "the file of secret \"%s\" is not a regular file", name);
		return NULL;
	}
	if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
	{
		snprintf(
			error, error_size,
			"others than the owner have access to the file of secret \"%s\": set its mode to 600",
			name);
		return NULL;
	}
	len = read(fd, bytes, sizeof(bytes));
	while (len > 0 && isspace((unsigned char) bytes[len - 1]))
		len--;
	if (len <= 0 || len == (ssize_t) sizeof(bytes))
	{
		snprintf(error, error_size, "the file of secret \"%s\" is %s", name,
				 len <= 0 ? "empty" : "too long");
		return NULL;
	}
	secret = llmq_arena_strndup(arena, bytes, (size_t) len);
	memset(bytes, 0, sizeof(bytes));
	return secret;
}
