"""What the stand-in answers when no script says otherwise, in each provider's own words.

The answer to a prompt is an extract of the prompt: its first sentences.  So a test or a demo can
tell from an answer which text it belongs to.  Nothing here does I/O.
"""

import hashlib
import json
import re

EXTRACT_CHARS = 320
PIECES = 8              # a streamed answer comes in about this many pieces
DIMENSIONS = 8          # of an embedding, unless the request asks for another number

ERROR_TYPES = {
    400: ("invalid_request_error", None),
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", None),
    404: ("not_found_error", "model_not_found"),
    409: ("conflict_error", None),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("overloaded_error", None),
    529: ("overloaded_error", None),
}


def dialect_of(path):
    """Names the dialect that a request path belongs to, or None."""
    path = path.split("?", 1)[0]
    if path.endswith("/chat/completions"):
        return "openai_chat"
    if path.endswith("/responses"):
        return "openai_responses"
    if path.endswith("/messages"):
        return "anthropic_messages"
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return "gemini"
    if path.endswith("/api/chat"):
        return "ollama_chat"
    if path.endswith("/embeddings"):
        return "openai_embeddings"
    return None


def model_of(path, body):
    if isinstance(body.get("model"), str):
        return body["model"]
    match = re.search(r"/models/([^:/?]+)", path)
    return match.group(1) if match else None


def wants_stream(path, body):
    if dialect_of(path) == "ollama_chat":
        return body.get("stream", True) is True
    return body.get("stream") is True or ":streamGenerateContent" in path


def text_of(content):
    """Joins the text of a message's content, a string or a list of parts in any dialect."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(part if isinstance(part, str) else part.get("text") or ""
                   for part in content if isinstance(part, (str, dict)))


def last_user_message(body):
    """Returns the text of the newest message of the user, whatever the dialect calls it."""
    for name in ("messages", "input", "contents"):
        turns = body.get(name)
        if isinstance(turns, str):
            return turns
        if not isinstance(turns, list):
            continue
        if all(isinstance(turn, str) for turn in turns):        # embeddings
            return "\n".join(turns)
        for turn in reversed(turns):
            if isinstance(turn, dict) and turn.get("role", "user") == "user":
                return text_of(turn.get("content", turn.get("parts")))
    return ""


def extract(text):
    """Returns the first two sentences of text; a short heading that ends in a colon is skipped."""
    head, separator, rest = text.partition("\n\n")
    if separator and len(head) < 200 and head.rstrip().endswith(":") and rest.strip():
        text = rest
    text = re.sub(r"\s+", " ", text).strip()[:4 * EXTRACT_CHARS]
    sentences = re.split(r"(?<=[.!?])\s+", text)
    short = " ".join(sentences[:2])[:EXTRACT_CHARS].strip()
    return short or "Nothing was asked."


def tokens(text):
    return max(1, (len(text) + 3) // 4)


def pieces_of(text):
    size = max(1, -(-len(text) // PIECES))
    return [text[i:i + size] for i in range(0, len(text), size)] or [""]


def error_body(status, message=None):
    kind, code = ERROR_TYPES.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return json.dumps({"error": {"message": message or "Scripted answer %d." % status,
                                 "type": kind, "param": None, "code": code}})


def sse(events, named=False):
    """Frames events as server-sent events, one chunk each."""
    return [("event: %s\n" % event["type"] if named else "") + "data: " +
            json.dumps(event) + "\n\n" for event in events]


class Answer:
    """One default answer: .content_type and either .body or .chunks."""

    def __init__(self, request, text=None, finish=None):
        body = request.body
        self.seq = request.seq
        self.model = request.model or "stand-in"
        self.options = body.get("stream_options") or {}
        self.text = extract(request.user) if text is None else text
        self.finish = finish
        self.prompt_tokens = tokens(request.raw_text)
        self.output_tokens = tokens(self.text)
        self.body = self.chunks = None
        self.content_type = "application/json"
        getattr(self, request.dialect)(request)

    def document(self, value):
        self.body = json.dumps(value)

    def stream(self, chunks, content_type="text/event-stream"):
        self.chunks, self.content_type = chunks, content_type

    def openai_chat(self, request):
        usage = {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.output_tokens,
                 "total_tokens": self.prompt_tokens + self.output_tokens}
        frame = {"id": "chatcmpl-%d" % self.seq, "created": 1767225600, "model": self.model}
        finish = self.finish or "stop"
        if not request.stream:
            message = {"role": "assistant", "content": self.text}
            return self.document({**frame, "object": "chat.completion", "usage": usage,
                                  "choices": [{"index": 0, "message": message, "finish_reason": finish}]})
        frame["object"] = "chat.completion.chunk"

        def event(delta, reason=None):
            return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

        events = [event({"role": "assistant", "content": ""})]
        events += [event({"content": piece}) for piece in pieces_of(self.text)]
        events.append(event({}, finish))
        if self.options.get("include_usage"):
            events.append({**frame, "choices": [], "usage": usage})
        return self.stream(sse(events) + ["data: [DONE]\n\n"])

    def openai_responses(self, request):
        item = {"type": "message", "id": "msg_%d" % self.seq, "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": self.text, "annotations": []}]}
        whole = {"id": "resp_%d" % self.seq, "object": "response", "model": self.model,
                 "status": self.finish or "completed", "output": [item],
                 "usage": {"input_tokens": self.prompt_tokens, "output_tokens": self.output_tokens,
                           "total_tokens": self.prompt_tokens + self.output_tokens}}
        if not request.stream:
            return self.document(whole)
        events = [{"type": "response.created",
                   "response": {**whole, "status": "in_progress", "output": [], "usage": None}}]
        events += [{"type": "response.output_text.delta", "item_id": item["id"], "output_index": 0,
                    "content_index": 0, "delta": piece} for piece in pieces_of(self.text)]
        events.append({"type": "response.completed", "response": whole})
        return self.stream(sse(events, named=True))

    def anthropic_messages(self, request):
        usage = {"input_tokens": self.prompt_tokens, "output_tokens": self.output_tokens}
        whole = {"id": "msg_%d" % self.seq, "type": "message", "role": "assistant", "model": self.model,
                 "content": [{"type": "text", "text": self.text}], "stop_reason": self.finish or "end_turn",
                 "stop_sequence": None, "usage": usage}
        if not request.stream:
            return self.document(whole)
        events = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None,
                                                        "usage": {**usage, "output_tokens": 1}}},
                  {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}]
        events += [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
                   for piece in pieces_of(self.text)]
        events += [{"type": "content_block_stop", "index": 0},
                   {"type": "message_delta", "usage": {"output_tokens": self.output_tokens},
                    "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None}},
                   {"type": "message_stop"}]
        return self.stream(sse(events, named=True))

    def gemini(self, request):
        usage = {"promptTokenCount": self.prompt_tokens, "candidatesTokenCount": self.output_tokens,
                 "totalTokenCount": self.prompt_tokens + self.output_tokens}

        def part(text, reason=None):
            candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}
            if reason:
                candidate["finishReason"] = reason
            return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": self.model}

        finish = self.finish or "STOP"
        if not request.stream:
            return self.document(part(self.text, finish))
        pieces = pieces_of(self.text)
        return self.stream(sse([part(piece) for piece in pieces[:-1]] + [part(pieces[-1], finish)]))

    def ollama_chat(self, request):
        def line(text, **more):
            return {"model": self.model, "created_at": "2026-01-01T00:00:00Z",
                    "message": {"role": "assistant", "content": text}, "done": False, **more}

        last = {"done": True, "done_reason": self.finish or "stop",
                "prompt_eval_count": self.prompt_tokens, "eval_count": self.output_tokens}
        if not request.stream:
            return self.document(line(self.text, **last))
        lines = [line(piece) for piece in pieces_of(self.text)] + [line("", **last)]
        return self.stream([json.dumps(value) + "\n" for value in lines], "application/x-ndjson")

    def openai_embeddings(self, request):
        inputs = request.body.get("input")
        inputs = inputs if isinstance(inputs, list) else [inputs]
        size = request.body.get("dimensions") or DIMENSIONS
        data = [{"object": "embedding", "index": index, "embedding": vector_of(str(value), size)}
                for index, value in enumerate(inputs)]
        return self.document({"object": "list", "data": data, "model": self.model,
                              "usage": {"prompt_tokens": self.prompt_tokens, "total_tokens": self.prompt_tokens}})


def vector_of(text, size):
    """Returns a vector that depends on the text alone, each number in -1..1."""
    digest = hashlib.shake_256(text.encode("utf-8", "surrogatepass")).digest(2 * size)
    return [round(int.from_bytes(digest[2 * i:2 * i + 2], "big") / 32767.5 - 1, 6) for i in range(size)]
