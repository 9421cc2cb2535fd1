#!/usr/bin/python3
"""Writes what the fuzzers start from: a few inputs for each target and a dictionary, out of test/cases.

    seeds.py CASES FOLDER       FOLDER/<target>/* and FOLDER/words.dict
"""

import base64
import hashlib
import json
import os
import re
import sys

APIS = ("openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama_chat", "openai_embeddings")
STATUSES = {200: 0, 400: 5, 429: 6, 500: 7, 529: 8, 302: 9, 204: 10, None: 11}
ENDS = {"keepalive": 0, "close": 0, "short": 3, "reset": 4, "hang": 5}
MAX_SEED = 1 << 14
MAX_WORDS = 400

WISHES = ("0", "1", "1.5", "0.0001", "315360000", "315360001", "-1", "1e3", "NaN", " 20 ", "1h31m30.5s", "250ms", "6m0s",
          "9223372036854775807", "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT",
          "Sun Nov  6 08:49:37 1994", "Thu, 29 Feb 2024 23:59:60 GMT", "Thu, 01 Jan 9999 00:00:00 GMT")

PROMPTS = (
    {"prompt": "Hi", "system": "Be brief.", "params": {"temperature": 0.5, "max_tokens": 5, "stop": ["a"]}},
    {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": [
        {"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://a.test/b.png", "detail": "low"}}]}]},
    {"messages": [{"role": "user", "content": "w"}, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "42"}],
     "params": {"tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
                "tool_choice": {"type": "function", "function": {"name": "f"}}}},
    {"prompt": "j", "params": {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}}}},
    {"params": {"input": ["one", "two"], "dimensions": 3}},
)


def write(folder, target, data):
    path = os.path.join(folder, target)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, hashlib.sha256(data).hexdigest()[:16]), "wb") as file:
        file.write(data[:MAX_SEED])


def body_of(response):
    """Returns the body of a case's response, or None if it is repeated or compressed."""
    encoded = response.get("chunks_base64")
    if "body_repeat" in response:
        return None
    if encoded is not None:
        return b"".join(base64.b64decode(chunk) for chunk in encoded)
    if "body_base64" in response:
        return base64.b64decode(response["body_base64"])
    text = response.get("body", "".join(response.get("chunks", [])))
    return text.encode("utf-8", "surrogatepass")


def seed_case(folder, case):
    response = case["response"]
    body = body_of(response)
    if body is None or "header_repeat" in response:
        return
    headers = "".join("%s:%s\n" % tuple(header) for header in response.get("headers", [])).replace("\0", "")
    status = STATUSES.get(response.get("status", 200), 5)
    head = bytes([1 if case["stream"] else 0, ENDS[response.get("end", "keepalive")], 7, status])
    write(folder, "reply_" + case["api"], head + headers.encode("utf-8", "surrogatepass") + b"\0" + body)
    write(folder, "sse", bytes([1 if case["api"] == "ollama_chat" else 0, 7]) + body)
    write(folder, "json", body)
    write(folder, "text", body)
    for name, value in response.get("headers", []):
        if "retry" in name.lower() or "reset" in name.lower() or name.lower() == "date":
            write(folder, "hint", b"\0" + value.encode("utf-8", "surrogatepass"))


def seed_requests(folder):
    for api in range(len(APIS)):
        for prompt in PROMPTS:
            words = ["https://a.test/v1?x=1", json.dumps({"X-A": "b ${credential}"}), "s3cret", "key", prompt.get("prompt", ""),
                     prompt.get("system", ""), json.dumps(prompt["messages"]) if "messages" in prompt else "",
                     json.dumps(prompt["params"]) if "params" in prompt else "", "m"]
            write(folder, "request", bytes([api, 0]) + "\0".join(words).encode() + b"\0")


def write_words(folder, cases):
    """Words that a mutation would not hit upon: names and short strings of the answers."""
    text = json.dumps(cases) + json.dumps(PROMPTS)
    words = {}
    for word in re.findall(r'\\"([A-Za-z_.]{2,40})\\"', text) + re.findall(r'"([A-Za-z_.]{2,40})"', text):
        words[word] = words.get(word, 0) + 1
    chosen = sorted(words, key=lambda word: (-words[word], word))[:MAX_WORDS]
    with open(os.path.join(folder, "words.dict"), "w", encoding="ascii") as file:
        file.writelines('"\\"%s\\""\n' % word for word in chosen)
        file.writelines('"%s"\n' % token for token in ("data: ", "event: ", "[DONE]", "\\x0a\\x0a", "null", "1e999999", "\\\\ud800", "\\\\u0000"))


def main():
    source, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    cases = []
    for name in sorted(os.listdir(source)):
        if name.endswith(".json"):
            with open(os.path.join(source, name), encoding="utf-8") as file:
                cases += json.load(file)
    for case in cases:
        seed_case(folder, case)
    for text in WISHES:
        write(folder, "hint", b"\0" + text.encode())
    seed_requests(folder)
    write_words(folder, cases)


main()
