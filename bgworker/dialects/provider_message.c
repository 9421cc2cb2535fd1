/*
 * provider_message.c
 *		Parses messages in OpenAI form, for dialects that have another form.
 */
#include "dialects/provider_message.h"

#include <string.h>

static bool read_member(LlmqDraft *draft, LlmqMessage *message, LlmqSlice key, LlmqSlice value);
static bool read_role(LlmqDraft *draft, LlmqMessage *message);
static bool check_message(LlmqDraft *draft, const LlmqMessage *message);
static bool read_call(LlmqDraft *draft, LlmqSlice source, LlmqToolCall *call);
static bool same_string(LlmqSlice a, LlmqSlice b);

LlmqMessageWalk
llmq_message_walk(const LlmqDraft *draft)
{
	return (LlmqMessageWalk){.at = llmq_slice_walk(draft->messages)};
}

bool
llmq_message_next(LlmqDraft *draft, LlmqMessageWalk *walk, LlmqMessage *message)
{
	LlmqSlice source;
	LlmqSlice key;
	LlmqSlice value;
	LlmqSliceWalk members;

	draft->message_number = walk->count;
	if (!llmq_slice_next(&walk->at, &source))
		return false;
	walk->count++;
	walk->failed = true;
	memset(message, 0, sizeof(*message));
	members = llmq_slice_walk(source);
	while (llmq_slice_next_member(&members, &key, &value))
		if (llmq_slice_given(value) && !read_member(draft, message, key, value))
			return false;
	if (!read_role(draft, message) || !check_message(draft, message))
		return false;
	if (message->role == LLMQ_ROLE_ASSISTANT && message->tool_calls.at != NULL)
		walk->last_calls = message->tool_calls;
	walk->failed = false;
	return true;
}

bool
llmq_message_has_content(const LlmqMessage *message)
{
	return message->content.at != NULL && message->content.len > 2; /* not "" and not [] */
}

bool
llmq_message_each_call(LlmqDraft *draft, const LlmqMessage *message, LlmqToolCallWriter write)
{
	LlmqSliceWalk walk = llmq_slice_walk(message->tool_calls);
	LlmqSlice source;
	LlmqToolCall call;

	while (llmq_slice_next(&walk, &source))
		if (!read_call(draft, source, &call) || !write(draft, &call))
			return false;
	return true;
}

bool
llmq_message_find_call(LlmqDraft *draft, const LlmqMessageWalk *walk, const LlmqMessage *answer,
					   LlmqToolCall *call)
{
	LlmqSliceWalk calls = llmq_slice_walk(walk->last_calls);
	LlmqSlice source;

	while (llmq_slice_next(&calls, &source))
		if (read_call(draft, source, call) && same_string(call->id, answer->tool_call_id))
			return true;
	return false;
}

bool
llmq_tool_call_object(LlmqDraft *draft, const LlmqToolCall *call, LlmqSlice *object)
{
	const char *text = "{}";
	size_t len = 2;

	*object = call->arguments;
	if (llmq_slice_kind(*object) == '{')
		return true;
	if (call->custom)
		return llmq_draft_fail(draft, "messages[%d]: %s has no tool calls of type custom.",
							   draft->message_number, llmq_api_name(draft->target->api));
	if (call->arguments.len > 2 && !llmq_draft_read_text(draft, call->arguments, &text, &len))
		return false;
	if (llmq_slice_parse(text, len, object) && llmq_slice_kind(*object) == '{')
		return true;
	return llmq_draft_fail(draft,
						   "messages[%d]: the arguments of a tool call are not a JSON object.",
						   draft->message_number);
}

static bool
read_member(LlmqDraft *draft, LlmqMessage *message, LlmqSlice key, LlmqSlice value)
{
	if (llmq_slice_equals(key, "role"))
		message->role_name = value;
	else if (llmq_slice_equals(key, "content"))
		message->content = value;
	else if (llmq_slice_equals(key, "tool_calls"))
		message->tool_calls = value;
	else if (llmq_slice_equals(key, "tool_call_id"))
		message->tool_call_id = value;
	else if (llmq_slice_equals(key, "name"))
		message->name = value;
	else if (llmq_slice_equals(key, "refusal"))
		message->refusal = value;
	else if (llmq_slice_equals(key, "function_call"))
		return llmq_draft_fail(
			draft, "messages[%d]: %s does not know function_call: write it as tool_calls.",
			draft->message_number, llmq_api_name(draft->target->api));
	return true;
}

static bool
read_role(LlmqDraft *draft, LlmqMessage *message)
{
	static const struct
	{
		const char *name;
		LlmqRole role;
	} roles[] = {
		{"user", LLMQ_ROLE_USER},	  {"assistant", LLMQ_ROLE_ASSISTANT}, {"tool", LLMQ_ROLE_TOOL},
		{"system", LLMQ_ROLE_SYSTEM}, {"developer", LLMQ_ROLE_SYSTEM},
	};

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (llmq_slice_equals(message->role_name, roles[i].name))
		{
			message->role = roles[i].role;
			return true;
		}
	return llmq_draft_fail(
		draft, "messages[%d]: the role must be system, developer, user, assistant or tool.",
		draft->message_number);
}

static bool
check_message(LlmqDraft *draft, const LlmqMessage *message)
{
	char content = llmq_slice_kind(message->content);
	char calls = llmq_slice_kind(message->tool_calls);
	int number = draft->message_number;

	if (content != 0 && content != '"' && content != '[')
		return llmq_draft_fail(draft, "messages[%d]: content must be a text or an array of parts.",
							   number);
	if (calls != 0 && calls != '[')
		return llmq_draft_fail(draft, "messages[%d]: tool_calls must be an array.", number);
	if (llmq_slice_count(message->tool_calls) > LLMQ_TOOL_CALLS_MAX)
		return llmq_draft_fail(draft, "messages[%d]: it has more than %d tool calls.", number,
							   LLMQ_TOOL_CALLS_MAX);
	if (calls != 0 && message->role != LLMQ_ROLE_ASSISTANT)
		return llmq_draft_fail(draft, "messages[%d]: only an assistant has tool_calls.", number);
	if (message->role == LLMQ_ROLE_TOOL && llmq_slice_kind(message->tool_call_id) != '"')
		return llmq_draft_fail(draft, "messages[%d]: a tool message needs a tool_call_id.", number);
	if (content == 0 && calls == 0 && message->refusal.at == NULL)
		return llmq_draft_fail(draft, "messages[%d]: it has no content.", number);
	return true;
}

static bool
read_call(LlmqDraft *draft, LlmqSlice source, LlmqToolCall *call)
{
	LlmqSlice function = llmq_slice_member(source, "function");

	memset(call, 0, sizeof(*call));
	call->source = source;
	call->custom = function.at == NULL;
	if (call->custom)
		function = llmq_slice_member(source, "custom");
	call->id = llmq_slice_member(source, "id");
	call->name = llmq_slice_member(function, "name");
	call->arguments = llmq_slice_member(function, call->custom ? "input" : "arguments");
	if (!llmq_slice_given(call->arguments))
		call->arguments = (LlmqSlice){"\"\"", 2};
	if (llmq_slice_kind(call->id) == '"' && llmq_slice_kind(call->name) == '"' &&
		(llmq_slice_kind(call->arguments) == '"' || llmq_slice_kind(call->arguments) == '{'))
		return true;
	return llmq_draft_fail(
		draft, "messages[%d]: a tool call needs an id, and a function with name and arguments.",
		draft->message_number);
}

/* Returns whether two strings are equal; jsonb writes equal strings as equal bytes. */
static bool
same_string(LlmqSlice a, LlmqSlice b)
{
	return a.len == b.len && a.at != NULL && b.at != NULL && memcmp(a.at, b.at, a.len) == 0;
}
