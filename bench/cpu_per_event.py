"""CPU per received event at 1,024 streams: the generator against the barest Python loop.

The bare loop selects, receives and reads the clock, keeps nothing and understands nothing. Both
run in processes of their own against the same server, in the order A B B A …; the ratio is that
of each pair, the result the median.
"""

from __future__ import annotations

import json
import selectors
import socket
import statistics
import subprocess
import sys
import time
from urllib.parse import urlsplit

from bench.server import reference, verdict
from concbench.load.generator import LoadPlan, ensure_files, resolve, run
from concbench.load.script import Once, Outgoing
from concbench.wire.http import render_request

STREAMS, TOKENS, PAIRS = 1024, 128, 4
LIMIT = 1.4


def request(url: str) -> bytes:
    body = json.dumps(
        {
            "model": "reference",
            "messages": [{"role": "user", "content": "count to many"}],
            "max_tokens": TOKENS,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    headers = {"Content-Type": "application/json"}
    return render_request("POST", "/v1/chat/completions", urlsplit(url).netloc, headers, body)


def bare(url: str) -> int:
    """Return CPU ns of the barest loop over the whole burst."""
    ensure_files(STREAMS)
    parts, payload = urlsplit(url), request(url)
    selector = selectors.DefaultSelector()
    socks = []
    for _ in range(STREAMS):
        sock = socket.create_connection((parts.hostname, parts.port))
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ)
        socks.append(sock)
    clock, select, last = time.monotonic_ns, selector.select, 0
    before = time.process_time_ns()
    for sock in socks:
        sock.send(payload)
    left = STREAMS
    while left:
        for key, _ in select():
            data = key.fileobj.recv(65536)
            last = clock()
            if data.endswith(b"0\r\n\r\n"):
                left -= 1
    used = time.process_time_ns() - before
    assert last
    for sock in socks:
        sock.close()
    return used


def ours(url: str) -> int:
    """Return CPU ns of the generator over the same burst."""
    parts = urlsplit(url)
    scripts = [Once(Outgoing(request(url), TOKENS)) for _ in range(STREAMS)]
    raw = run(LoadPlan(resolve(parts.hostname or "", parts.port or 0, None), scripts))
    assert all(r.ending == "complete" for r in raw.requests), {r.ending for r in raw.requests}
    raw.log.close()
    return raw.client_cpu_ns


def child(kind: str, url: str) -> float:
    """Return CPU microseconds per event of one client process."""
    command = [sys.executable, "-m", "bench.cpu_per_event", kind, url]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout) / 1000 / (STREAMS * TOKENS)


def main() -> int:
    ratios, ours_us, bare_us = [], [], []
    with reference("--ttft-ms", "50", "--itl-ms", "20") as url:
        child("bare", url)
        for pair in range(PAIRS):
            order = ("ours", "bare") if pair % 2 == 0 else ("bare", "ours")
            took = {kind: child(kind, url) for kind in order}
            ours_us.append(took["ours"])
            bare_us.append(took["bare"])
            ratios.append(took["ours"] / took["bare"])
    print(
        f"  ours {statistics.median(ours_us):.1f} µs/event, bare {statistics.median(bare_us):.1f}"
    )
    spread = f"{min(ratios):.2f}–{max(ratios):.2f}, {PAIRS} pairs"
    return verdict(f"CPU per event, ratio ({spread})", statistics.median(ratios), LIMIT)


if __name__ == "__main__":
    kind, url = sys.argv[1:]
    print({"ours": ours, "bare": bare}[kind](url))
