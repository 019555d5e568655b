"""The client's own limits: the load generator against a server whose truth is known.

The reference server runs as a child process on this machine and says what it really did; a ladder
of loads shows how far from that the client's numbers are, and from where on the client is the
bottleneck. What was found is kept by machine, and copied into every study.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import numpy as np
from msgspec import Struct

from concbench import __version__
from concbench.analyse.bundling import bundling
from concbench.analyse.instrument import client_bound_by, client_error, loop_lag_ms, p99
from concbench.analyse.streams import Floats, samples, streams_of
from concbench.clock import utc_stamp
from concbench.domain import Cell, Round, StampKind, Workload
from concbench.errors import NotReady
from concbench.load import stamps
from concbench.load.generator import LoadPlan, resolve
from concbench.load.script import Once
from concbench.measure.carrier import Carrier
from concbench.measure.digest import digest
from concbench.measure.requests import Ask
from concbench.serve.http import Http, parse_json

SCHEMA = "concbench.calibration/1"
QUICK_STREAMS = (1, 16, 64, 256, 1024)
TOK_PER_S = 50.0
TTFT_MS = 50.0
LENGTH_S = 1.5
STAGGER_NS = 250_000_000
"""Requests are spread over this: a burst's start would be the load, not the tokens."""

SERVER_LATE_SHARE = 0.5
"""A null server whose tokens are late by this share of a step is the limit itself."""

_SENDING = ("send_delay_p99_ms", "ttft_ms")


class Step(Struct, frozen=True, kw_only=True):
    """One load of the ladder. Errors are ours against the server's own account.

    `bound` names why the client was the bottleneck; `server_late_p99_ms` is how late the null
    server itself was.
    """

    streams: int
    tok_per_s_a_stream: float
    got_tok_per_s: float
    ttft_mean_error_ms: float
    ttft_p99_error_ms: float
    rate_error_pct: float
    read_lateness_p99_ms: float | None
    remaining_p99_ms: float | None
    loop_lag_p99_ms: float | None
    client_cpu: float
    server_late_p99_ms: float
    bound: dict[str, float] = {}


class Calibration(Struct, frozen=True, kw_only=True):
    """A ladder and the ceiling that follows from it.

    `method`: `measured` where the client gave way on the ladder; `extrapolated` from its CPU where
    it did not; `none` where even the lightest load was too much.
    """

    at_utc: str
    tool_version: str
    procs: int
    stamp: StampKind
    steps: list[Step]
    ceiling_tok_per_s: float | None
    ceiling_streams: int
    method: Literal["measured", "extrapolated", "none"]


def calibrate_client(
    procs: int = 1,
    streams: Sequence[int] = QUICK_STREAMS,
    tok_per_s: float = TOK_PER_S,
    on_step: Callable[[Step], None] = lambda _: None,
) -> Calibration:
    """Climb the ladder; stops after the first load under which the client is the bottleneck.

    Raises NotReady when the null server does not start, UsageError for limits of the machine.
    """
    stamp, steps = stamps.available(), list[Step]()
    with null_server(tok_per_s) as url:
        climb(url, 1, tok_per_s, stamp, procs)  # the first run pays for imports and caches
        for count in streams:
            steps.append(climb(url, count, tok_per_s, stamp, procs))
            on_step(steps[-1])
            if steps[-1].bound:
                break
    return concluded(steps, procs, stamp)


def concluded(steps: Sequence[Step], procs: int, stamp: StampKind) -> Calibration:
    """Return the calibration that the steps amount to."""
    sound = [step for step in steps if not step.bound]
    best = max(sound, key=lambda step: step.got_tok_per_s, default=None)
    ceiling, method = None, "none"
    if best is not None:
        method = "measured" if len(sound) < len(steps) else "extrapolated"
        ceiling = best.got_tok_per_s
        if method == "extrapolated" and best.client_cpu > 0:
            ceiling = max(ceiling, best.got_tok_per_s * procs / best.client_cpu)
    return Calibration(
        at_utc=utc_stamp(),
        tool_version=__version__,
        procs=procs,
        stamp=stamp,
        steps=list(steps),
        ceiling_tok_per_s=ceiling,
        ceiling_streams=max((step.streams for step in sound), default=0),
        method=method,  # type: ignore[arg-type]
    )


@contextmanager
def null_server(tok_per_s: float) -> Iterator[str]:
    """Yield the URL of a reference server that ends with the block. Raises NotReady."""
    command = [
        sys.executable, "-m", "concbench", "reference", "--until-stdin-closes",
        "--ttft-ms", str(TTFT_MS), "--itl-ms", str(1000 / tok_per_s), "--max-inflight", "0",
    ]  # fmt: skip
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        if not line:
            raise NotReady("the null server for the calibration did not start")
        yield json.loads(line)["url"]
    finally:
        child.stdin.close()
        child.stdout.close()
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def climb(url: str, streams: int, tok_per_s: float, stamp: StampKind, procs: int) -> Step:
    """Run one load against the null server and compare."""
    http = Http(url)
    http.post_json("/truth/reset", {})
    round_ = _load(url, streams, max(2, round(LENGTH_S * tok_per_s)), stamp, procs)
    told = parse_json(http.get("/truth", timeout_s=60))["requests"]
    return _compared(round_, told, tok_per_s)


def _load(url: str, streams: int, tokens: int, stamp: StampKind, procs: int) -> Round:
    parts = urlsplit(url)
    ask = Ask(
        host=parts.netloc, prefix="/v1", model="reference", engine_fields={"ignore_eos": True}
    )
    scripts = [
        Once(ask.render(f"calibrate {k}", tokens, k, "calibrate"), k * STAGGER_NS // streams)
        for k in range(streams)
    ]
    peer = resolve(parts.hostname or "", parts.port or 80, None)
    raw = Carrier(procs).carry(LoadPlan(peer, scripts, stamp))
    if raw.interrupted:
        raise KeyboardInterrupt
    return digest(
        raw,
        round_id="calibration",
        cell=Cell(cell="calibration", lane="null", concurrency=streams, context_tok=0),
        index=0,
        phase="measured",
        workload=Workload(prompt_tokens=0, output_tokens=tokens, seed=0, arrival="constant"),
        prompts=[],
    )


def _compared(round_: Round, told: Sequence[dict[str, Any]], tok_per_s: float) -> Step:
    streams = streams_of(round_)
    felt = samples(streams, streaming=True, buffered=False)
    lag_ms = loop_lag_ms([round_])
    error = client_error([round_], streams, bundling(streams, 1e6 * (p99(lag_ms) or 0.0)), felt)
    known = [one for one in told if one["first_ns"] is not None and one["last_ns"] is not None]
    true_ms = np.array([(one["first_ns"] - one["received_ns"]) / 1e6 for one in known])
    late_ms = np.array([one["lateness_max_ns"] / 1e6 for one in known])
    true_rate = _rate([(r["received_ns"], r["last_ns"], r["tokens"]) for r in known])
    ended = [r for r in round_.requests if r.sent_ns is not None and r.last_token_ns is not None]
    rate = _rate([(r.sent_ns or 0, r.last_token_ns or 0, r.output_tok) for r in ended])
    bound = client_bound_by(error, None, None)
    server_late_ms = p99(late_ms) or 0.0
    limit = SERVER_LATE_SHARE * 1000 / tok_per_s
    blamed = bound if server_late_ms < limit else {}
    return Step(
        streams=len(round_.requests),
        tok_per_s_a_stream=tok_per_s,
        got_tok_per_s=rate,
        ttft_mean_error_ms=_mean(felt.ttft_ms) - _mean(true_ms),
        ttft_p99_error_ms=(p99(felt.ttft_ms) or 0.0) - (p99(true_ms) or 0.0),
        rate_error_pct=100 * (rate / true_rate - 1) if true_rate else 0.0,
        read_lateness_p99_ms=error.read_lateness_p99_ms,
        remaining_p99_ms=error.remaining_p99_ms,
        loop_lag_p99_ms=p99(lag_ms),
        client_cpu=round_.instrument.client_cpu or 0.0,
        server_late_p99_ms=server_late_ms,
        bound={name: value for name, value in blamed.items() if name not in _SENDING},
    )


def _rate(rows: Sequence[tuple[int, int, int]]) -> float:
    """Return tokens per second over `(began_ns, ended_ns, tokens)`, first to last."""
    if not rows:
        return 0.0
    length_ns = max(ended for _, ended, _ in rows) - min(began for began, _, _ in rows)
    return sum(tokens for _, _, tokens in rows) / length_ns * 1e9 if length_ns > 0 else 0.0


def _mean(values: Floats) -> float:
    return float(values.mean()) if values.size else 0.0


def cache_path(fingerprint: str) -> Path:
    """Return where a machine's calibrations are kept: under XDG_CACHE_HOME."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "concbench" / f"calibration-{fingerprint}.json"


def keep(calibration: Calibration, fingerprint: str) -> Path:
    """Store a calibration beside those for other numbers of processes; return the file.

    Raises OSError where it cannot be written.
    """
    path = cache_path(fingerprint)
    known = {**stored(fingerprint), calibration.procs: calibration}
    text = msgspec.json.encode(
        {"schema": SCHEMA, "calibrations": [known[procs] for procs in sorted(known)]}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_suffix(f".{os.getpid()}")
    staged.write_bytes(msgspec.json.format(text, indent=1) + b"\n")
    staged.replace(path)
    return path


def stored(fingerprint: str) -> dict[int, Calibration]:
    """Return the machine's calibrations by number of processes; empty where there are none."""
    try:
        content = msgspec.json.decode(cache_path(fingerprint).read_bytes())
        if content["schema"] != SCHEMA:
            return {}
        found = msgspec.convert(content["calibrations"], list[Calibration])
    except (OSError, msgspec.MsgspecError, KeyError, TypeError):
        return {}
    return {each.procs: each for each in found}
