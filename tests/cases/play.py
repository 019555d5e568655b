"""A server that plays a script to the measured requests, and `concbench burst` run against it.

The server keeps its own monotonic stamps of every write, so that a test compares the client's
intervals with what was really sent and not with what was meant to be.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from concbench.cli.main import main
from concbench.clock import now_ns, sleep_s
from concbench.domain import RequestRecord, Round
from concbench.store.read import open_study
from tests.load.server import SSE_HEAD, chunk, serving

MODEL = "scripted"
DONE = b"data: [DONE]\n\n"
MS = 1_000_000

Line = tuple[float, bytes]
"""When after the request's arrival, in seconds, and what of the body."""

Script = Callable[[int], Sequence[Line]]
"""The request's number among the measured ones -> what is played to it."""


def event(value: object) -> bytes:
    """A server-sent event with that JSON."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(content: str | None = None, reason: str | None = None, **fields: Any) -> bytes:
    """A chat chunk. Without `content` the delta has none."""
    said = fields if content is None else {"content": content, **fields}
    return event({"choices": [{"index": 0, "delta": said, "finish_reason": reason}]})


def usage(output: int, prompt: int | None = 50, *, choices: list[Any] | None = None) -> bytes:
    """A usage chunk, by default with an empty list of choices."""
    counts = {"completion_tokens": output}
    if prompt is not None:
        counts |= {"prompt_tokens": prompt, "total_tokens": prompt + output}
    return event({"choices": choices or [], "usage": counts})


def stream(times: Sequence[float], *, end: Sequence[bytes] | None = None) -> list[Line]:
    """One-token chunks at those times, then a finish, usage and `[DONE]`."""
    tail = [delta("", "length"), usage(len(times)), DONE] if end is None else end
    lines = [(at, delta(f" w{k}")) for k, at in enumerate(times)]
    return [*lines, *((times[-1] if times else 0.0, data) for data in tail)]


@dataclass
class Play:
    """What the server did. `writes` holds, by request number, (before, after, bytes) in ns."""

    url: str = ""
    arrived: dict[int, int] = field(default_factory=dict)
    writes: dict[int, list[tuple[int, int, bytes]]] = field(default_factory=dict)
    heads: list[bytes] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def gap_ms(self, number: int, first: bytes, last: bytes) -> tuple[float, float]:
        """The bounds of the time between the writes that hold those bytes."""
        a, b = self._write(number, first), self._write(number, last)
        return (b[0] - a[1]) / 1e6, (b[1] - a[0]) / 1e6

    def wait_ms(self, number: int, what: bytes) -> float:
        """From the request's arrival to the write that holds those bytes: at least this."""
        return (self._write(number, what)[0] - self.arrived[number]) / 1e6

    def _write(self, number: int, what: bytes) -> tuple[int, int, bytes]:
        return next(write for write in self.writes[number] if what in write[2])


@contextmanager
def playing(
    script: Script,
    *,
    head: bytes = SSE_HEAD,
    model: dict[str, Any] | None = None,
    answer: Callable[[socket.socket, int], bool] | None = None,
    cut: Callable[[int], bool] = lambda number: False,
    prefix: str = "/v1",
) -> Iterator[Play]:
    """Serve. Probes get a plain good answer; measured requests get the script, numbered from 0.

    `answer(sock, number)` may answer a measured request itself (True). `cut(number)` closes the
    connection at the script's end, the body unfinished.
    """
    play, lock = Play(), Lock()
    listing = json.dumps({"object": "list", "data": [{"id": MODEL, **(model or {})}]}).encode()

    def reply(sock: socket.socket, request: bytes, _count: int) -> None:
        head_bytes, _, body = request.partition(b"\r\n\r\n")
        line = head_bytes.split(b"\r\n", 1)[0]
        play.asked.append(line.decode())
        if line.startswith(b"GET"):
            known = line.split()[1] == f"{prefix}/models".encode()
            _plain(sock, 200 if known else 404, listing if known else b"{}")
            return
        asked = json.loads(body)
        tag = re.search(rb"X-Request-Id: concbench-(probe|\d+)-\d+", head_bytes)
        if tag is None or tag[1] == b"probe":
            words = len(str(asked).split())
            _play(sock, _good(asked["max_tokens"], words), SSE_HEAD, None)
            return
        with lock:
            number = len(play.bodies)
            play.bodies.append(asked)
            play.heads.append(head_bytes)
            play.arrived[number] = now_ns()
        if answer is not None and answer(sock, number):
            return
        _play(sock, script(number), head, play.writes.setdefault(number, []), cut=cut(number))

    with serving(reply) as (host, port):
        play.url = f"http://{host}:{port}"
        yield play


def _plain(sock: socket.socket, status: int, body: bytes) -> None:
    sock.sendall(
        b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (status, len(body), body)
    )


def error_page(sock: socket.socket, status: int, message: str) -> None:
    """Answer with an error object."""
    _plain(sock, status, json.dumps({"error": {"message": message, "code": status}}).encode())


def _good(tokens: int, words: int) -> list[Line]:
    tail = [delta("", "length"), usage(tokens, words), DONE]
    return [(0.001 * k, delta(" ok")) for k in range(tokens)] + [(0.0, data) for data in tail]


def _play(
    sock: socket.socket,
    lines: Sequence[Line],
    head: bytes,
    writes: list[tuple[int, int, bytes]] | None,
    *,
    cut: bool = False,
) -> None:
    began = now_ns()
    sock.sendall(head)
    framed = b"chunked" in head
    for at, data in lines:
        left = at - (now_ns() - began) / 1e9
        if left > 0:
            sleep_s(left)
        before = now_ns()
        sock.sendall(chunk(data) if framed else data)
        if writes is not None:
            writes.append((before, now_ns(), data))
    if cut:
        sock.shutdown(socket.SHUT_RDWR)
        raise OSError("cut")
    if framed:
        sock.sendall(b"0\r\n\r\n")
    else:
        sock.shutdown(socket.SHUT_RDWR)


@dataclass
class Run:
    """What one command left: exit code, result JSON, study folder."""

    code: int
    result: dict[str, Any]
    folder: Path

    @property
    def cell(self) -> dict[str, Any]:
        """The only cell."""
        (cell,) = self.result["cells"]
        return dict(cell)

    @property
    def client(self) -> dict[str, Any]:
        """The only cell's client part."""
        return dict(self.cell["client"])

    @property
    def doubts(self) -> dict[str, dict[str, Any]]:
        """Doubts by code; of several with one code the first."""
        found: dict[str, dict[str, Any]] = {}
        for doubt in self.result["doubts"]:
            found.setdefault(doubt["code"], doubt)
        return found

    def rounds(self, phase: str | None = "measured") -> list[Round]:
        """The stored rounds."""
        reader = open_study(self.folder)
        infos = reader.rounds() if phase is None else reader.rounds(phase)  # type: ignore[arg-type]
        return [reader.load_round(info.round_id) for info in infos]

    def requests(self) -> list[RequestRecord]:
        """The records of all measured rounds."""
        return [record for each in self.rounds() for record in each.requests]


class Bench:
    """Runs commands in this process; each gets a study folder of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.count = 0

    def __call__(self, command: str, target: str, *words: str) -> Run:
        """Run a measuring command and return what it left."""
        self.count += 1
        out = self.folder / f"study{self.count}"
        given = [command, target, *words, "--out", str(out), "--quiet", "--json", "-"]
        code = main(given)
        captured = self.capsys.readouterr()
        assert captured.out, captured.err
        strict = json.loads(captured.out, parse_constant=lambda text: pytest.fail(text))
        return Run(code, strict, out)

    def payload(self, *words: str) -> dict[str, Any]:
        """Run a command that measures no cells and return its payload."""
        main([*words, "--quiet", "--json", "-"])
        captured = self.capsys.readouterr()
        assert captured.out, captured.err
        return dict(json.loads(captured.out)["payload"])

    def burst(self, target: str, *words: str, n: int = 1, rounds: int = 1, out: int = 8) -> Run:
        """Burst without a warm-up wave: every request that is not a probe is measured."""
        sizes = ["--levels", str(n), "--rounds", str(rounds), "--output-tokens", str(out)]
        return self("burst", target, *sizes, "--warmup", "0", *words)

    def refused(self, *words: str) -> tuple[int, str]:
        """Run a command that is to fail with one line; return the code and the line."""
        code = main([*words, "--quiet"])
        error = self.capsys.readouterr().err.strip()
        assert len(error.splitlines()) == 1, error
        return code, error


def within(value: float, bounds: tuple[float, float], slack_ms: float = 50.0) -> bool:
    """Whether a measured interval lies within the server's own bounds, in ms.

    The slack is for a busy machine: a read that comes late takes two events as one.
    """
    return bounds[0] - slack_ms <= value <= bounds[1] + slack_ms


__all__ = [
    "DONE",
    "MS",
    "Bench",
    "Play",
    "Run",
    "delta",
    "error_page",
    "event",
    "playing",
    "stream",
    "usage",
    "within",
]
