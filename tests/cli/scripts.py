"""Things that go wrong with a server's own accounting while a loop runs, played for real.

Each script is a reference server, what is done to it once the measured loop is under way, and the
command that measures it meanwhile. `tests.cli.test_accounting` asserts what must come of them;
`bench.accounting` prints it.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from concbench.cli.main import main

N, OUTPUT_TOK, TTFT_MS, ITL_MS = 4, 20, 40, 20
PACE = ("--ttft-ms", str(TTFT_MS), "--itl-ms", str(ITL_MS))
TRUE_TOK_PER_S = N * OUTPUT_TOK / ((TTFT_MS + (OUTPUT_TOK - 1) * ITL_MS) / 1e3)
LOOP = "concbench-1-"
"""Begins the request ids of the round after the warm-up."""

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Script:
    """`event` happens once the loop runs: `restart`, or what the server does when it is told to."""

    name: str
    server: tuple[str, ...] = ()
    event: str | None = None
    max_s: float = 7.0


SCRIPTS = (
    Script("nothing wrong"),
    Script("counters reset in mid-run", (), "reset-counters"),
    Script("server restarted", (), "restart", 10.0),
    Script("two workers behind one port", ("--two-workers",)),
    Script("foreign traffic", ("--foreign-tok-per-s", "100")),
    Script("cache hits", ("--cached-tok", "30")),
    Script("a 5 s stall", ("--stall-s", "5"), "stall", 16.0),
    Script("preemptions", (), "preempt"),
)


def play(script: Script, folder: Path) -> tuple[int, dict[str, Any]]:
    """Measure while the script is played; return the exit code and the result JSON."""
    result = folder / "result.json"
    over = threading.Event()
    with _Server((*PACE, *script.server)) as server:
        thread = threading.Thread(target=_once_running, args=(server, script.event, over))
        thread.start()
        try:
            words = ["sustain", server.url, "-c", str(N), "--output-tokens", str(OUTPUT_TOK)]
            words += ["--max-s", str(script.max_s), "--until", "0.01%", "--seed", "1"]
            words += ["--out", str(folder / "study"), "--json", str(result), "--quiet"]
            code = main(words)
        finally:
            over.set()
            thread.join()
    return code, json.loads(result.read_bytes())


def _once_running(server: _Server, event: str | None, over: threading.Event) -> None:
    """Let the event happen as soon as the ramp is over and each worker has its next request."""
    while event is not None and not over.wait(POLL_S):
        if server.asked(LOOP) >= 4 * N:
            server.restart() if event == "restart" else server.happen(event)
            return


class _Server:
    """A reference server on a port of its own, so that it can come back there."""

    def __init__(self, options: tuple[str, ...]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._options = options
        self._child: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> _Server:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def asked(self, tag: str) -> int:
        """Return how many requests with ids that begin so have come."""
        with suppress(OSError):
            rows = json.loads(_http(f"{self.url}/truth"))["requests"]
            return sum((row["client_id"] or "").startswith(tag) for row in rows)
        return 0

    def happen(self, event: str) -> None:
        """Let it stall, reset its counters or preempt half of what runs, now."""
        _http(f"{self.url}/truth/{event}", b"")

    def restart(self) -> None:
        """End it in the midst of its answers, and start it again."""
        self._stop()
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "concbench", "reference", "--until-stdin-closes"]
        self._child = subprocess.Popen(
            [*command, "--port", str(self._port), *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._child.stdout is not None
        assert self._child.stdout.readline()

    def _stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


def _http(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=10) as answer:
        return bytes(answer.read())


def told(script: Script, code: int, result: dict[str, Any]) -> Iterator[str]:
    """Yield what a script came to, in lines: the figures, then the doubts about them."""
    (cell,) = result["cells"]
    steady, server = cell["client"]["steady_output_tok_per_s"], cell["server"]
    rate = server["output_tok_per_s"]
    yield (
        f"{script.name}: exit {code}, steady {_point(steady)} tok/s (true {TRUE_TOK_PER_S:.1f}), "
        f"server {_point(rate)}, agreement {_signed(cell['agreement_pct'])}, generated "
        f"{cell['ledger']['generated']}, received {cell['ledger']['received']}, "
        f"preemptions {server['preemptions']}, cached {server['cached_tok']}"
    )
    for doubt in result["doubts"]:
        if doubt["severity"] != "note":
            yield f"    {doubt['severity']} {doubt['code']}: {doubt['message']}"


def _point(estimate: dict[str, Any] | None) -> str:
    return "none" if estimate is None else f"{estimate['point']:.1f}"


def _signed(value: float | None) -> str:
    return "none" if value is None else f"{value:+.2f} %"
