/*
 * provider_part.c
 *		Parses the content of a message: text, images, audio, files.
 *
 * Inline data comes as a data: URL, or as base64 with the name of a format.  A dialect gets the
 * media type and the base64 in both cases; they are not copied unless the source contains
 * escapes.
 */
#include "dialects/provider_message.h"

#include <string.h>
#include <strings.h>

typedef bool (*PartReader)(LlmqDraft *draft, LlmqPart *part);

static bool read_part(LlmqDraft *draft, LlmqSlice source, LlmqPart *part);
static bool read_text(LlmqDraft *draft, LlmqPart *part);
static bool read_refusal(LlmqDraft *draft, LlmqPart *part);
static bool read_image(LlmqDraft *draft, LlmqPart *part);
static bool read_audio(LlmqDraft *draft, LlmqPart *part);
static bool read_file(LlmqDraft *draft, LlmqPart *part);
static bool read_data_url(LlmqDraft *draft, LlmqPart *part, LlmqSlice string);
static bool is_data_url(LlmqSlice string);
static bool fail_part(LlmqDraft *draft, const char *what);

bool
llmq_message_each_part(LlmqDraft *draft, const LlmqMessage *message, LlmqPartWriter write)
{
	LlmqSliceWalk walk = llmq_slice_walk(message->content);
	LlmqSlice source;
	LlmqPart part = {.kind = LLMQ_PART_TEXT, .text = message->content};

	if (llmq_slice_kind(message->content) == '"')
		return write(draft, &part);
	while (llmq_slice_next(&walk, &source))
		if (!read_part(draft, source, &part) || !write(draft, &part))
			return false;
	return true;
}

void
llmq_part_write_inline(LlmqDraft *draft, const LlmqPart *part, const char *type_key,
					   const char *data_key)
{
	LlmqBuffer *out = &draft->body;

	llmq_write_key(out, type_key);
	llmq_write_text_len(out, part->media_type, part->media_type_len);
	llmq_write_key(out, data_key);
	llmq_write_text_len(out, part->data, part->data_len);
}

static bool
read_part(LlmqDraft *draft, LlmqSlice source, LlmqPart *part)
{
	static const struct
	{
		const char *type;
		LlmqPartKind kind;
		PartReader read;
	} readers[] = {
		{"text", LLMQ_PART_TEXT, read_text},		  {"image_url", LLMQ_PART_IMAGE, read_image},
		{"input_audio", LLMQ_PART_AUDIO, read_audio}, {"file", LLMQ_PART_FILE, read_file},
		{"refusal", LLMQ_PART_REFUSAL, read_refusal},
	};
	LlmqSlice type = llmq_slice_member(source, "type");

	memset(part, 0, sizeof(*part));
	part->source = source;
	part->kind = LLMQ_PART_OTHER;
	if (llmq_slice_kind(source) != '{')
		return fail_part(draft, "each part of content must be an object");
	for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++)
		if (llmq_slice_equals(type, readers[i].type))
		{
			part->kind = readers[i].kind;
			return readers[i].read(draft, part);
		}
	return true;
}

static bool
read_text(LlmqDraft *draft, LlmqPart *part)
{
	part->text = llmq_slice_member(part->source, "text");
	return llmq_slice_kind(part->text) == '"' || fail_part(draft, "a text part needs a text");
}

static bool
read_refusal(LlmqDraft *draft, LlmqPart *part)
{
	part->text = llmq_slice_member(part->source, "refusal");
	return llmq_slice_kind(part->text) == '"' || fail_part(draft, "a refusal part needs a refusal");
}

static bool
read_image(LlmqDraft *draft, LlmqPart *part)
{
	LlmqSlice image = llmq_slice_member(part->source, "image_url");
	LlmqSlice url = llmq_slice_kind(image) == '"' ? image : llmq_slice_member(image, "url");

	if (llmq_slice_kind(url) != '"')
		return fail_part(draft, "an image_url part needs a url");
	if (is_data_url(url))
		return read_data_url(draft, part, url);
	part->url = url;
	return true;
}

static bool
read_audio(LlmqDraft *draft, LlmqPart *part)
{
	LlmqSlice audio = llmq_slice_member(part->source, "input_audio");
	LlmqSlice data = llmq_slice_member(audio, "data");
	LlmqSlice format = llmq_slice_member(audio, "format");
	const char *name;
	size_t len;

	if (llmq_slice_kind(data) != '"' || llmq_slice_kind(format) != '"')
		return fail_part(draft, "an input_audio part needs data and format");
	if (!llmq_draft_read_text(draft, data, &part->data, &part->data_len) ||
		!llmq_draft_read_text(draft, format, &name, &len))
		return false;
	part->media_type = llmq_arena_printf(draft->arena, "audio/%.*s", (int) len, name);
	part->media_type_len = len + strlen("audio/");
	return part->media_type != NULL;
}

static bool
read_file(LlmqDraft *draft, LlmqPart *part)
{
	LlmqSlice file = llmq_slice_member(part->source, "file");
	LlmqSlice data = llmq_slice_member(file, "file_data");

	part->file_id = llmq_slice_member(file, "file_id");
	part->filename = llmq_slice_member(file, "filename");
	if (llmq_slice_kind(data) == '"')
		return is_data_url(data) ? read_data_url(draft, part, data)
								 : fail_part(draft, "file_data must be a data: URL");
	return llmq_slice_kind(part->file_id) == '"' ||
		   fail_part(draft, "a file part needs file_data or file_id");
}

/* Reads data:<media type>[;parameters];base64,<data> (RFC 2397).  Other encodings are not in use.
 */
static bool
read_data_url(LlmqDraft *draft, LlmqPart *part, LlmqSlice string)
{
	static const char marker[] = ";base64";
	const size_t marker_len = sizeof(marker) - 1;
	const char *text;
	const char *comma;
	const char *parameters;
	size_t len;

	if (!llmq_draft_read_text(draft, string, &text, &len))
		return false;
	text += strlen("data:");
	len -= strlen("data:");
	comma = memchr(text, ',', len);
	if (comma == NULL || (size_t) (comma - text) < marker_len ||
		strncasecmp(comma - marker_len, marker, marker_len) != 0)
		return fail_part(draft, "a data: URL must be in base64 (data:<media type>;base64,…)");
	parameters = memchr(text, ';', (size_t) (comma - text));
	part->media_type = text;
	part->media_type_len = (size_t) (parameters - text);
	part->data = comma + 1;
	part->data_len = len - (size_t) (comma + 1 - text);
	return part->media_type_len > 0 || fail_part(draft, "a data: URL must name its media type");
}

/* Returns whether a string is a data: URL.  Nobody writes the first five letters with an escape. */
static bool
is_data_url(LlmqSlice string)
{
	return string.len > 7 && strncasecmp(string.at + 1, "data:", 5) == 0;
}

static bool
fail_part(LlmqDraft *draft, const char *what)
{
	return llmq_draft_fail(draft, "messages[%d]: %s.", draft->message_number, what);
}
