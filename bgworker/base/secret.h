/*
 * secret.h
 *		Finds the secret that belongs to a name.
 *
 * Secrets are never in the database: a name leads to a file in llmq.secrets_directory, or to
 * the environment variable LLMQ_SECRET_<NAME>.  A file is read for each call, so that a rotated
 * key works at once.  It must be a regular file that only its owner can read.
 */
#ifndef LLMQ_SECRET_H
#define LLMQ_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"

/* Longer secrets are refused. */
#define LLMQ_SECRET_MAX_BYTES 16384

/*
 * Reads a secret into arena, without the white space at its end.  When there is none, or it is
 * refused, returns NULL and writes a sentence into error, which shows nothing of the content.
 * directory may be NULL or "".
 */
extern const char *llmq_secret_read(LlmqArena *arena, const char *directory, const char *name,
									char *error, size_t error_size);

#endif /* LLMQ_SECRET_H */
