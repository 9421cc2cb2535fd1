"""Which answer a request gets: rules, and the bytes of a scripted response.

A rule is {"match": S, "path": P, "responses": [R, ...]}.  It applies when S occurs in the last
message of the user or is the model's name, and P occurs in the path; what is left out always
applies.  Newer rules come first.  The n-th call of a job gets the n-th response of its rule, the
last one for ever.  A rule with read_bytes_per_s has the bodies of requests to its path (whatever
their message is, for that comes with the body) read no faster than that, but for their last 6 MiB.
A response has the format of test/cases/README.md, and in addition:
    no body at all      the default answer, or an error document if the status is 400 or more
    {}                  the default answer at once
    text, finish_reason for the default answer
    hold                a name; nothing is written until POST /_control/release names it
    chunks_times        the list of chunks is written so many times over (0: for ever)
"""

import base64
import itertools

import answers

REASONS = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 301: "Moved Permanently",
           302: "Found", 307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request",
           401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
           408: "Request Timeout", 409: "Conflict", 410: "Gone", 413: "Payload Too Large",
           422: "Unprocessable Entity", 429: "Too Many Requests", 500: "Internal Server Error",
           502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout", 529: "Overloaded"}
BODY_KEYS = ("body", "body_base64", "body_repeat", "chunks", "chunks_base64")
ENDS = ("keepalive", "close", "reset", "hang", "short")
MAX_JOBS = 500_000      # calls are counted for this many jobs; the oldest are forgotten


class Script:
    def __init__(self):
        self.rules = []
        self.calls = {}
        self.names = itertools.count(1)

    def reset(self):
        self.rules, self.calls = [], {}

    def add(self, rules):
        """Puts rules in front of those that are there.  Raises ValueError for what it cannot act on."""
        for rule in rules:
            unknown = set(rule) - {"match", "path", "responses", "name", "read_bytes_per_s"}
            if unknown or not rule.get("responses"):
                raise ValueError("a rule has match, path, name, read_bytes_per_s and a non-empty list responses, not %s"
                                 % (", ".join(sorted(unknown)) or "this"))
            for response in rule["responses"]:
                if response.get("end", "keepalive") not in ENDS:
                    raise ValueError("end is one of %s" % ", ".join(ENDS))
                Plan(response)          # a mistake in it is the script's, not a request's
            rule.setdefault("name", "rule %d" % next(self.names))
        self.rules[:0] = rules

    def read_rate(self, path):
        """Returns how many bytes a second are read of a request to path; None: as they come."""
        for rule in self.rules:
            if "read_bytes_per_s" in rule and rule.get("path", "") in path:
                return rule["read_bytes_per_s"]
        return None

    def count(self, *key):
        number = self.calls.pop(key, 0) + 1
        self.calls[key] = number        # now the newest
        if len(self.calls) > MAX_JOBS:
            del self.calls[next(iter(self.calls))]
        return number

    def choose(self, request):
        """Returns (response, name of the rule, number of the job's call under it)."""
        for rule in self.rules:
            match, path = rule.get("match"), rule.get("path")
            if match is not None and match not in request.user and match != request.model:
                continue
            if path is not None and path not in request.path:
                continue
            number = self.count(rule["name"], request.job)
            return rule["responses"][min(number, len(rule["responses"])) - 1], rule["name"], number
        return {}, None, self.count(None, request.job)


def fill(response, request):
    """Returns response with the body that it leaves to us."""
    status = response.get("status", 200)
    if status is None or any(key in response for key in BODY_KEYS):
        return response
    filled = dict(response)
    if status >= 400 or request.dialect is None:
        filled["body"] = answers.error_body(status) if status >= 400 else "{}"
        content_type = "application/json"
    elif 300 <= status or status == 204:
        return filled
    else:
        text = response.get("text")
        if "text_repeat" in response:
            text = response["text_repeat"][0] * response["text_repeat"][1]
        answer = answers.Answer(request, text, response.get("finish_reason"))
        filled["chunks" if answer.chunks else "body"] = answer.chunks or answer.body
        content_type = answer.content_type
    headers = list(response.get("headers", []))
    if not any(name.lower() == "content-type" for name, _ in headers):
        headers.insert(0, ["Content-Type", content_type])
    filled["headers"] = headers
    return filled


def encode(text):
    return text.encode("utf-8", "surrogatepass")


def pieces(response):
    """Returns the body as a list of byte strings, and whether each is a chunk of its own."""
    if "chunks" in response:
        return [encode(chunk) for chunk in response["chunks"]], True
    if "chunks_base64" in response:
        return [base64.b64decode(chunk) for chunk in response["chunks_base64"]], True
    body = b""
    if "body_repeat" in response:
        text, times = response["body_repeat"]
        body = encode(text) * times
    if "body_base64" in response:
        body += base64.b64decode(response["body_base64"])
    return [body + encode(response.get("body", ""))], False


def status_line(version, status):
    return "HTTP/%s %d %s\r\n" % (version, status, REASONS.get(status, "Status"))


class Plan:
    """A response turned into bytes: .head, .pieces (each already framed), .tail, .end."""

    def __init__(self, response):
        self.end = response.get("end", "keepalive")
        self.status = response.get("status", 200)
        self.delay = response.get("delay_ms", 0) / 1000
        self.chunk_delay = response.get("chunk_delay_ms", 0) / 1000
        self.hold = response.get("hold")
        self.times = response.get("chunks_times", 1)
        self.head, self.pieces, self.tail = b"", [], b""
        if self.status is None:
            return
        parts, separate = pieces(response)
        headers = [tuple(header) for header in response.get("headers", [])]
        names = {name.lower(): value.lower() for name, value in headers}
        named = "content-length" in names or "transfer-encoding" in names
        chunked = names.get("transfer-encoding") == "chunked"
        length = sum(len(part) for part in parts)
        if not named and self.end == "keepalive" and separate:
            headers.append(("Transfer-Encoding", "chunked"))
            chunked = True
        elif not named and self.end == "keepalive" and self.status != 204:
            headers.append(("Content-Length", str(length)))
        elif not named and self.end == "short":
            headers.append(("Content-Length", str(length + 64)))
        if "header_repeat" in response:
            name, text, times = response["header_repeat"]
            headers.append((name, text * times))
        self.head = self.head_bytes(response, headers)
        if chunked:
            parts = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts if part]
            self.tail = b"0\r\n\r\n" if self.end == "keepalive" else b""
        self.pieces = parts

    def head_bytes(self, response, headers):
        lines = []
        for interim in response.get("interim") or []:
            lines.append(status_line("1.1", interim["status"]))
            lines += ["%s: %s\r\n" % tuple(header) for header in interim.get("headers", [])]
            lines.append("\r\n")
        lines.append(status_line(response.get("http", "1.1"), self.status))
        lines += ["%s: %s\r\n" % header for header in headers]
        lines.append("\r\n")
        return encode("".join(lines))
