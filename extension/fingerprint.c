/*
 * fingerprint.c
 *		Computes a fingerprint of everything that must be the same when a request is repeated
 *		under its key.
 *
 * A fingerprint is kept with its job for as long as its key is, so what it covers, and how,
 * must never change.  It is the SHA-256 of the text of a jsonb array of the parts, in UTF-8.
 * The text is written here directly, in the form of jsonb_build_array(...)::text.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"

#include "compat.h"

/* The trace context in metadata, which is a different one when a client repeats a request. */
#define TRACE_PARENT "traceparent"

typedef enum Part
{
	PART_QUEUE,
	PART_PROMPT,
	PART_SYSTEM,
	PART_MESSAGES,
	PART_MODEL,
	PART_PARAMS,
	PART_METADATA,
	PART_OUTBOX,
	PART_ON_COMPLETE,
	PART_AFTER,
	PART_RUN_ID,
	PART_STEP,
	PART_POLICY,
	PARTS
} Part;

PG_FUNCTION_INFO_V1(llmq_fingerprint_1);

static void append_part(StringInfo out, FunctionCallInfo fcinfo, Part part);
static void append_text(StringInfo out, Datum value);
static void append_json(StringInfo out, Jsonb *value);
static void append_uuids(StringInfo out, ArrayType *uuids);
static Jsonb *without_trace(Jsonb *metadata);
static Datum digest(StringInfo text);

/* fingerprint(queue, prompt, ... policy): the parts in the order of Part, any of them NULL. */
Datum
llmq_fingerprint_1(PG_FUNCTION_ARGS)
{
	StringInfoData text;

	initStringInfo(&text);
	for (Part part = 0; part < PARTS; part++)
	{
		appendStringInfoString(&text, part == 0 ? "[" : ", ");
		if (PG_ARGISNULL(part))
			appendStringInfoString(&text, "null");
		else
			append_part(&text, fcinfo, part);
	}
	appendStringInfoChar(&text, ']');
	PG_RETURN_DATUM(digest(&text));
}

static void
append_part(StringInfo out, FunctionCallInfo fcinfo, Part part)
{
	switch (part)
	{
		case PART_METADATA:
			append_json(out, without_trace(PG_GETARG_JSONB_P(part)));
			break;
		case PART_MESSAGES:
		case PART_PARAMS:
		case PART_OUTBOX:
		case PART_POLICY:
			append_json(out, PG_GETARG_JSONB_P(part));
			break;
		case PART_AFTER:
			append_uuids(out, PG_GETARG_ARRAYTYPE_P(part));
			break;
		default:
			append_text(out, PG_GETARG_DATUM(part));
			break;
	}
}

static void
append_text(StringInfo out, Datum value)
{
	escape_json(out, TextDatumGetCString(value));
}

static void
append_json(StringInfo out, Jsonb *value)
{
	if (value == NULL)
		appendStringInfoString(out, "null");
	else
		(void) JsonbToCString(out, &value->root, VARSIZE(value));
}

/* Appends a list of uuids, which has no NULLs: check_job has checked that. */
static void
append_uuids(StringInfo out, ArrayType *uuids)
{
	Datum *ids;
	int count;

	deconstruct_array(uuids, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &ids, NULL, &count);
	for (int i = 0; i < count; i++)
	{
		appendStringInfoString(out, i == 0 ? "[" : ", ");
		escape_json(out, DatumGetCString(DirectFunctionCall1(uuid_out, ids[i])));
	}
	appendStringInfoChar(out, ']');
}

/*
 * Returns the metadata without the trace; NULL if nothing else is in it, as if there had never
 * been any.
 */
static Jsonb *
without_trace(Jsonb *metadata)
{
	Datum key = CStringGetTextDatum(TRACE_PARENT);

	if (!JB_ROOT_IS_OBJECT(metadata) ||
		!DatumGetBool(DirectFunctionCall2(jsonb_exists, JsonbPGetDatum(metadata), key)))
		return metadata;
	metadata = DatumGetJsonbP(DirectFunctionCall2(jsonb_delete, JsonbPGetDatum(metadata), key));
	return JB_ROOT_COUNT(metadata) == 0 ? NULL : metadata;
}

static Datum
digest(StringInfo text)
{
	char *utf8 = (char *) pg_do_encoding_conversion((unsigned char *) text->data, text->len,
													GetDatabaseEncoding(), PG_UTF8);
	int length = utf8 == text->data ? text->len : (int) strlen(utf8);

	return DirectFunctionCall1(sha256_bytea,
							   PointerGetDatum(cstring_to_text_with_len(utf8, length)));
}
