"""What stamps and TLS cost and change: user stamps, kernel stamps, and kernel stamps under TLS.

CPU per event and the error of TTFT at 256 streams, each variant in a process of its own, in turn.
With TLS the stamp is that of the ciphertext. The start-up self-test, which chooses the kind of
stamp, is timed beside them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import trustme

from bench.cpu_per_event import request
from bench.server import reference, truth, verdict
from concbench.clock import now_ns
from concbench.load import stamps
from concbench.load.generator import LoadPlan, resolve, run
from concbench.load.script import Once, Outgoing
from concbench.load.tls import context
from concbench.measure.stamped import grouped

STREAMS, TOKENS, ROUNDS = 256, 128, 4
APART_NS = 1_000_000
VARIANTS = ("user", "kernel", "tls")
TTFT_MS = 50.0


def one(variant: str, url: str, ca: str) -> tuple[float, float, float]:
    """Return CPU µs per event, and mean and p99 of TTFT in ms by first byte."""
    parts = urlsplit(url)
    tls = context(Path(ca)) if variant == "tls" else None
    scripts = [Once(Outgoing(request(url), TOKENS), k * APART_NS) for k in range(STREAMS)]
    peer = resolve(parts.hostname or "", parts.port or 0, tls)
    raw = run(LoadPlan(peer, scripts, "user" if variant == "user" else "kernel"))
    assert all(r.ending == "complete" for r in raw.requests), {r.detail for r in raw.requests}
    found = grouped(raw.log, raw.offsets, len(raw.requests))
    ttft_ms = []
    for number, sent in enumerate(raw.requests):
        kernel, user = found.of(number)
        # The head comes at once; the first token is the read after it.
        ttft_ms.append(((int(kernel[1]) or int(user[1])) - (sent.sent_ns or 0)) / 1e6)
    raw.log.close()
    cpu_us = raw.client_cpu_ns / 1000 / (STREAMS * TOKENS)
    return cpu_us, statistics.mean(ttft_ms), float(np.quantile(ttft_ms, 0.99))


def child(variant: str, url: str, ca: str) -> tuple[float, float, float]:
    command = [sys.executable, "-m", "bench.tls", variant, url, ca]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cpu_us, mean_ms, p99_ms = map(float, done.stdout.split())
    return cpu_us, mean_ms, p99_ms


def self_test_ms() -> float:
    """Return how long the self-test takes in a fresh process."""
    code = "from bench.tls import timed; timed()"
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def timed() -> None:
    before = now_ns()
    stamps.available()
    print((now_ns() - before) / 1e6)


def main() -> int:
    took = {variant: [] for variant in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        authority = trustme.CA()
        cert, ca = Path(folder) / "cert.pem", Path(folder) / "ca.pem"
        authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(cert))
        authority.cert_pem.write_to_path(str(ca))
        pace = ("--ttft-ms", str(TTFT_MS), "--itl-ms", "20")
        with reference(*pace) as plain, reference(*pace, "--tls-cert", str(cert)) as secure:
            for turn in range(ROUNDS):
                for variant in VARIANTS if turn % 2 else VARIANTS[::-1]:
                    url = secure if variant == "tls" else plain
                    took[variant].append(child(variant, url, str(ca)))
            told = {"plain": truth(plain), "tls": truth(secure, str(ca))}
    for variant, rows in took.items():
        cpu_us, mean_ms, p99_ms = (statistics.median(column) for column in zip(*rows, strict=True))
        print(
            f"  {variant:<7} {cpu_us:5.1f} µs/event   TTFT mean {mean_ms:.2f} p99 {p99_ms:.2f} ms"
        )
    for name, requests in told.items():
        true_ms = [(r["first_ns"] - r["received_ns"]) / 1e6 for r in requests]
        print(f"  server, {name}: TTFT mean {statistics.mean(true_ms):.2f} ms")
    middle = {v: statistics.median(row[0] for row in rows) for v, rows in took.items()}
    missed = verdict("kernel stamps ÷ user stamps, CPU", middle["kernel"] / middle["user"], 1.5)
    missed += verdict("TLS ÷ plain, CPU", middle["tls"] / middle["kernel"], 2.5)
    wait_ms = statistics.median(self_test_ms() for _ in range(5))
    return missed + verdict("self-test of the stamps", wait_ms, 250, "ms")


if __name__ == "__main__":
    print(*one(*sys.argv[1:4]))
