/*
 * json_write.h
 *		Writes compact JSON into a buffer, without a tree.
 *
 * Commas are set by looking at the last byte written, so a writer need not say whether an
 * element is the first.  Nothing checks that brackets match.  A buffer that is full or finds no
 * memory stays `failed`; check once at the end.
 *
 * The writer is our own because jansson writes only from a tree, and would convert the numbers
 * of the user's JSON.
 */
#ifndef LLMQ_JSON_WRITE_H
#define LLMQ_JSON_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "json/json_slice.h"

/* Opens an object or an array: { or [. */
extern void llmq_write_open(LlmqBuffer *out, char bracket);

/* Closes it: } or ]. */
extern void llmq_write_close(LlmqBuffer *out, char bracket);

/*
 * Closes it, or if it is empty, removes everything that was written since the buffer was start
 * bytes long.
 */
extern void llmq_write_close_or_drop(LlmqBuffer *out, char bracket, size_t start);

/* Writes the name of a member, which must not need escaping; its value comes next. */
extern void llmq_write_key(LlmqBuffer *out, const char *name);

/* Does the same for a name that may be any UTF-8 text. */
extern void llmq_write_name(LlmqBuffer *out, const char *name);

/* Writes a value that is already JSON (true, null, a literal string with its quotes). */
extern void llmq_write_raw(LlmqBuffer *out, const char *json);

extern void llmq_write_int(LlmqBuffer *out, int64_t value);

/* Writes UTF-8 text as a string. */
extern void llmq_write_text(LlmqBuffer *out, const char *text);

/* Does the same for len bytes, which may include NUL. */
extern void llmq_write_text_len(LlmqBuffer *out, const char *text, size_t len);

/* Writes a value as it is in the source, without the white space between its tokens. */
extern void llmq_write_slice(LlmqBuffer *out, LlmqSlice value);

/* Writes a member: a name, then the value. */
extern void llmq_write_member(LlmqBuffer *out, const char *name, LlmqSlice value);
extern void llmq_write_member_text(LlmqBuffer *out, const char *name, const char *text);
extern void llmq_write_member_int(LlmqBuffer *out, const char *name, int64_t value);
extern void llmq_write_member_bool(LlmqBuffer *out, const char *name, bool value);

/* Writes a member as it is in the source. */
extern void llmq_write_pair(LlmqBuffer *out, LlmqSlice key, LlmqSlice value);

/* Writes the members of an object into the object that is open. */
extern void llmq_write_members(LlmqBuffer *out, LlmqSlice object);

/*
 * These write a string in pieces: start it, add to it, end it.  A piece is text, or a string of
 * the source.  Nothing else may be written in between.
 */
extern void llmq_write_string_start(LlmqBuffer *out);
extern void llmq_write_string_add(LlmqBuffer *out, const char *text, size_t len);
extern void llmq_write_string_add_slice(LlmqBuffer *out, LlmqSlice string);
extern void llmq_write_string_end(LlmqBuffer *out);

#endif /* LLMQ_JSON_WRITE_H */
