/*
 * limit.c
 *		The quota and the breaker of an endpoint, which all workers share, for SQL.
 *
 * The arithmetic is in bgworker/limits/ratelimit.c and breaker.c; here it is applied to the
 * numbers in llmq.endpoint_limit.state, under the row's lock.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/array.h"

#include "limits/breaker.h"
#include "limits/ratelimit.h"
#include "compat.h"

typedef struct State
{
	LlmqBreakerMark mark; /* first: SQL reads it */
	LlmqLimit limit;
} State;

/* What SQL passes in addition, in this order. */
typedef struct Ask
{
	int64 worker;
	int64 requests_per_minute;
	int64 tokens_per_minute;
	int64 least_tokens;
	int64 charge;
	int64 event;
	int64 cooldown_us;
	int64 now_us;
	int64 draws;
} Ask;

/* What is returned in front of the state. */
typedef struct Reply
{
	LlmqGrant grant;
	int64 may_probe;
	State state;
} Reply;

#define WORDS_OF(type) ((int) (sizeof(type) / sizeof(int64)))

StaticAssertDecl(sizeof(State) % sizeof(int64) == 0, "a state is made of numbers");

PG_FUNCTION_INFO_V1(llmq_limit_draw_1);

/* Copies an array of int8 that must have `count` elements; an empty one leaves zeros. */
static void
read_words(ArrayType *array, int64 *words, int count)
{
	if (ARR_NDIM(array) == 0)
		return;
	if (ARR_NDIM(array) != 1 || ARR_DIMS(array)[0] != count || ARR_HASNULL(array) ||
		ARR_ELEMTYPE(array) != INT8OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION), errmsg("the state of a limit cannot be read"),
				 errdetail("It is not an array of %d numbers.", count),
				 errhint("DELETE FROM llmq.endpoint_limit resets all limits.")));
	memcpy(words, ARR_DATA_PTR(array), sizeof(int64) * (Size) count);
}

/* limit_draw(state int8[], ask int8[]): the grant, whether to probe, and the new state. */
Datum
llmq_limit_draw_1(PG_FUNCTION_ARGS)
{
	Reply reply = {0};
	Ask ask = {0};
	Datum words[WORDS_OF(Reply)];

	read_words(PG_GETARG_ARRAYTYPE_P(0), (int64 *) &reply.state, WORDS_OF(State));
	read_words(PG_GETARG_ARRAYTYPE_P(1), (int64 *) &ask, WORDS_OF(Ask));
	reply.may_probe = llmq_breaker_take(&reply.state.mark, (LlmqBreakerEvent) ask.event,
										ask.cooldown_us, ask.now_us);
	if (ask.draws)
	{
		LlmqDraw draw = {.worker = ask.worker,
						 .requests_per_minute = ask.requests_per_minute,
						 .tokens_per_minute = ask.tokens_per_minute,
						 .least_tokens = ask.least_tokens,
						 .charge = ask.charge};

		llmq_limit_draw(&reply.state.limit, &draw, ask.now_us, &reply.grant);
	}
	for (int i = 0; i < WORDS_OF(Reply); i++)
		words[i] = Int64GetDatum(((int64 *) &reply)[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(words, WORDS_OF(Reply), INT8OID, sizeof(int64),
										  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}
