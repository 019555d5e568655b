"""Throughput of a link by iperf3: its client run, its JSON read."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from concbench.analyse.estimate import mean_estimate
from concbench.domain import Estimate
from concbench.errors import MissingExtra, TargetError, Unreachable

PORT = 5201
OMIT_S = 1
"""Left out at the beginning of every run: TCP's slow start."""

Direction = Literal["there", "back", "both"]


class Throughput(Struct, frozen=True, kw_only=True):
    """One run of iperf3. Rates are payload bytes of TCP, as the receiving side counted them.

    `there` is from this machine to the host; with `both`, each entry is one of the two ways at
    once. `gb_per_s` is gigabits a second, its interval over iperf3's one-second reports.
    """

    direction: Direction
    way: Literal["there", "back"]
    streams: int
    length_s: float
    received_gb_per_s: float
    gb_per_s: Estimate
    retransmits: int | None


_WAYS: dict[Direction, Sequence[tuple[Literal["there", "back"], str]]] = {
    "there": [("there", "sum")],
    "back": [("back", "sum")],
    "both": [("there", "sum"), ("back", "sum_bidir_reverse")],
}


def iperf3_path() -> str:
    """Return where iperf3 is. Raises MissingExtra where it is not installed."""
    found = shutil.which("iperf3")
    if found is None:
        raise MissingExtra(
            "iperf3 is not installed, and measures the throughput: install it (Debian: "
            "`apt-get install iperf3`), or leave that out with --no-throughput"
        )
    return found


def measure(
    host: str, port: int, direction: Direction, streams: int, length_s: int
) -> list[Throughput]:
    """Run iperf3 once. Raises MissingExtra, or Unreachable where no iperf3 serves there."""
    command = [iperf3_path(), "-c", host, "-p", str(port), "-J", "-t", str(length_s)]
    command += ["-O", str(OMIT_S), "-P", str(streams)]
    command += {"there": [], "back": ["-R"], "both": ["--bidir"]}[direction]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=length_s + 30,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"iperf3 to {host}:{port} did not end: is the link up?") from None
    return parse(done.stdout, direction, streams, f"{host}:{port}")


def parse(
    output: bytes, direction: Direction, streams: int, where: str = "the server"
) -> list[Throughput]:
    """Return what a run's JSON says, one entry a way.

    Raises Unreachable with iperf3's own words where it failed, TargetError for anything else.
    """
    try:
        found = msgspec.json.decode(output)
        if "error" in found:
            raise Unreachable(_why(str(found["error"]), where))
        return [_way(found, direction, way, key, streams) for way, key in _WAYS[direction]]
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise TargetError(f"iperf3 to {where} gave no JSON that can be read ({error})") from error


def _why(said: str, where: str) -> str:
    if "refused" in said or "unable to connect" in said:
        return f"no iperf3 server at {where} ({said}): run `concbench link --serve` there"
    return f"iperf3 to {where}: {said}"


def _way(
    found: dict[str, Any],
    direction: Direction,
    way: Literal["there", "back"],
    key: str,
    streams: int,
) -> Throughput:
    end, suffix = found["end"], key.removeprefix("sum")
    received, sent = end[f"sum_received{suffix}"], end[f"sum_sent{suffix}"]
    rates = [
        float(interval[key]["bits_per_second"]) / 1e9
        for interval in found["intervals"]
        if not interval[key].get("omitted")
    ]
    estimate = mean_estimate(rates, unit="second")
    if estimate is None:
        raise ValueError("no intervals in it")
    retransmits = sent.get("retransmits")
    return Throughput(
        direction=direction,
        way=way,
        streams=streams,
        length_s=float(received["seconds"]),
        received_gb_per_s=float(received["bits_per_second"]) / 1e9,
        gb_per_s=estimate,
        retransmits=None if retransmits is None else int(retransmits),
    )
