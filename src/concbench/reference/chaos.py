"""A server that misbehaves at random, the same for a seed and the order of the requests. Pure.

Answers get faults that exist by name; the other pages get whole replies that no client expects.
"""

from __future__ import annotations

import random

from concbench.reference.faults import FAULTS, Named
from concbench.reference.http import response_head
from concbench.reference.parts import After

SHARE = 0.25
"""Of the requests, how many are answered wrongly."""

_ARGUMENTS = {
    "status": ("500", "503", "429", "404", "301", "400", "599"),
    "hang": ("0", "3", "10"),
    "truncate": ("0", "1", "7"),
    "reset": ("0", "2", "9"),
    "half-close": ("1", "6"),
    "clean-end": ("0", "4"),
    "error": ("0", "3"),
    "long-line": ("20000",),
    "drip": ("0", "1"),
    "usage-late": ("50", "400"),
    "delay": ("10", "300"),
    "split": ("1", "3", "17"),
    "huge-headers": ("10", "70"),
    "wrong-length": ("0", "3", "10000000"),
    "deep-json": ("900", "9000"),
}

_SILENT = frozenset({"hang", "no-bytes", "endless-head", "endless", "pause", "half-close"})
_SPARED = 3


class Chaos:
    """What goes wrong with which request. `share` of them, chosen by `seed`."""

    def __init__(self, seed: int, share: float = SHARE) -> None:
        self._seed = seed
        self._share = share

    def answer(self, number: int) -> list[Named]:
        """Return the faults of the answer to the request of that number: none, one or two.

        The first few requests are answered somehow: a client may wait long for a first token.
        """
        rng = random.Random(f"{self._seed}/answer/{number}")
        if rng.random() >= self._share:
            return []
        known = FAULTS.keys() - (_SILENT if number <= _SPARED else frozenset())
        names = rng.sample(sorted(known), rng.choice((1, 1, 2)))
        return [Named(name, rng.choice(_ARGUMENTS.get(name, ("",)))) for name in names]

    def page(self, number: int) -> tuple[bytes, After | None] | None:
        """Return what is sent instead of the page of that number, and how it then ends.

        None: the page itself. An ending of None leaves the connection open, silent.
        """
        rng = random.Random(f"{self._seed}/page/{number}")
        return rng.choice(_PAGES) if rng.random() < self._share else None


def _whole(status: int, kind: str, body: bytes) -> bytes:
    return response_head(status, {"Content-Type": kind}, length=len(body)) + body


_JSON, _TEXT = "application/json", "text/plain; version=0.0.4"
_PAGES: tuple[tuple[bytes, After | None], ...] = (
    (_whole(503, _JSON, b'{"error":{"message":"busy"}}'), "close"),
    (_whole(500, "text/html", b"<html><script>alert(1)</script></html>"), "close"),
    (_whole(200, _JSON, b'{"data":[{"id":'), "close"),
    (_whole(200, _JSON, b"[" * 50_000), "close"),
    (_whole(200, _JSON, b"null"), "close"),
    (_whole(200, _JSON, b'{"data":null,"models":7,"object":[]}'), "close"),
    (_whole(200, _TEXT, b"vllm:generation_tokens_total NaN\nvllm:x{ 1\n# TYPE\n"), "close"),
    (_whole(200, _TEXT, b"\xff\xfe\x00 1\n" * 2_000), "close"),
    (_whole(302, _TEXT, b"")[:-2] + b"Location: http://127.0.0.1:9/\r\n\r\n", "close"),
    (response_head(200, {}, length=10_000) + b"short", "close"),
    (b"\x00\x01SSH-2.0-nothing\r\n", "close"),
    (b"", "close"),
    (b"", "reset"),
    (b"HTTP/1.1 200 OK\r\nX-Half: ", None),
)
