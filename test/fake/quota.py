"""A quota that the stand-in enforces, on its own clock: only what it has counted itself matters.

POST /_control/quota {"requests_per_minute": N, "tokens_per_minute": N, "clock": C, "headers": H}; null
lifts it.  clock is sliding (any sixty seconds), fixed (each minute of the clock) or bucket (a minute's
quota, refilled evenly).  headers is openai, anthropic or absent: what answers say of what is left.
"""

import collections
import datetime
import time

MINUTE = 60.0


class Counter:
    """What has been used of one quota."""

    def __init__(self, limit, clock):
        self.limit, self.clock = limit, clock
        self.used, self.since = 0.0, time.time()
        self.taken = collections.deque()

    def look(self, now):
        """Forgets what is past."""
        if self.clock == "sliding":
            while self.taken and self.taken[0][0] <= now - MINUTE:
                self.used -= self.taken.popleft()[1]
        elif self.clock == "fixed":
            if int(now // MINUTE) != int(self.since // MINUTE):
                self.used = 0.0
            self.since = now
        else:
            self.used = max(0.0, self.used - (now - self.since) * self.limit / MINUTE)
            self.since = now

    def has(self, count):
        return self.used + count <= self.limit

    def take(self, count, now):
        self.used += count
        if self.clock == "sliding":
            self.taken.append((now, count))

    def reset_in(self, now):
        """Returns the seconds until all of it is there again."""
        if self.clock == "sliding":
            return self.taken[-1][0] + MINUTE - now if self.taken else 0.0
        if self.clock == "fixed":
            return MINUTE - now % MINUTE
        return self.used * MINUTE / self.limit


class Quota:
    def __init__(self, settings):
        unknown = set(settings) - {"requests_per_minute", "tokens_per_minute", "clock", "headers"}
        clock = settings.get("clock", "sliding")
        if unknown or clock not in ("sliding", "fixed", "bucket"):
            raise ValueError("a quota has requests_per_minute, tokens_per_minute, clock and headers")
        self.style = settings.get("headers")
        self.counters = {kind: Counter(settings[kind + "_per_minute"], clock)
                         for kind in ("requests", "tokens") if settings.get(kind + "_per_minute")}
        self.admitted = self.refused = self.tokens = 0

    def admit(self, tokens):
        """Counts a request; returns whether it is let in, and the headers of its answer."""
        now = time.time()
        counts = {"requests": 1, "tokens": tokens}
        for counter in self.counters.values():
            counter.look(now)
        admitted = all(counter.has(counts[kind]) for kind, counter in self.counters.items())
        if admitted:
            for kind, counter in self.counters.items():
                counter.take(counts[kind], now)
            self.admitted += 1
            self.tokens += tokens
        else:
            self.refused += 1
        return admitted, self.headers(now)

    def headers(self, now):
        lines = []
        for kind, counter in self.counters.items():
            left, reset = max(0, int(counter.limit - counter.used)), counter.reset_in(now)
            if self.style == "openai":
                lines += [("x-ratelimit-limit-" + kind, str(counter.limit)),
                          ("x-ratelimit-remaining-" + kind, str(left)),
                          ("x-ratelimit-reset-" + kind, "%dms" % int(reset * 1000))]
            elif self.style == "anthropic":
                until = datetime.datetime.fromtimestamp(now + reset, datetime.timezone.utc)
                lines += [("anthropic-ratelimit-%s-limit" % kind, str(counter.limit)),
                          ("anthropic-ratelimit-%s-remaining" % kind, str(left)),
                          ("anthropic-ratelimit-%s-reset" % kind, until.strftime("%Y-%m-%dT%H:%M:%SZ"))]
        return lines

    def state(self):
        return {"admitted": self.admitted, "refused": self.refused, "tokens": self.tokens}
