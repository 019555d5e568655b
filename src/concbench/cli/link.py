"""The link itself: throughput by iperf3, small-message round trips by an echo of our own.

`concbench link --serve` on the other machine starts both servers; `concbench link HOST` here
measures: one way, the other, both at once and with parallel streams, then 16 KB back and forth.
With --collective, and torch on both machines, also an all-reduce. Throughput is gigabits of TCP
payload a second.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from concbench import __version__
from concbench.analyse.estimate import summary
from concbench.cli import options
from concbench.clock import utc_stamp
from concbench.domain import Summary, to_builtins
from concbench.errors import MissingExtra, OutputUnusable, PortTaken, UsageError
from concbench.measure import collective, echo, throughput
from concbench.report import numbers
from concbench.result import Result, to_json

MESSAGE_BYTES = 16 * 1024


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `link`."""
    add = parser.add_argument
    add("host", nargs="?", metavar="HOST", help="the machine at the other end")
    add("--name", metavar="LINK", help="the link's label (default the host)")
    group = parser.add_argument_group("serving")
    group.add_argument("--serve", action="store_true", help="be the other end, until interrupted")
    group.add_argument("--bind", default="0.0.0.0", metavar="ADDRESS", help="listen there alone")
    group = parser.add_argument_group("what is measured")
    group.add_argument("--seconds", type=_positive, default=5, metavar="S", help="of each run (5)")
    group.add_argument(
        "--streams", type=_positive, default=4, metavar="N", help="parallel streams (default 4)"
    )
    group.add_argument("--no-throughput", action="store_true", help="no iperf3")
    group.add_argument("--no-latency", action="store_true", help="no round trips")
    group.add_argument(
        "--message-bytes",
        type=_positive,
        default=MESSAGE_BYTES,
        metavar="N",
        help="16384 if not given",
    )
    group.add_argument(
        "--count", type=_positive, default=1000, metavar="N", help="round trips (default 1000)"
    )
    group.add_argument("--collective", action="store_true", help="all-reduce too; needs torch")
    group.add_argument(
        "--backend", choices=["gloo", "nccl"], default="gloo", help="of the collective"
    )
    group.add_argument(
        "--torch-python",
        type=Path,
        metavar="FILE",
        help="a Python that has torch, where this one has not; it carries the collective",
    )
    group = parser.add_argument_group("ports")
    group.add_argument(
        "--iperf-port",
        type=_positive,
        default=throughput.PORT,
        metavar="P",
        help="iperf3 listens on it (default %(default)s)",
    )
    group.add_argument(
        "--echo-port",
        type=_port,
        default=echo.PORT,
        metavar="P",
        help="the echo server listens on it (default %(default)s)",
    )
    group.add_argument(
        "--collective-port",
        type=_positive,
        default=collective.PORT,
        metavar="P",
        help="the two ranks meet there (default %(default)s)",
    )
    group = parser.add_argument_group("output")
    group.add_argument("--into", type=Path, metavar="STUDY", help="keep it in that study as well")
    group.add_argument("--json", metavar="FILE", help="result JSON, - for stdout")
    group.add_argument("--quiet", action="store_true", help="no table")


_positive = options.checked(options.positive)
_port = options.checked(lambda text: 0 if text == "0" else options.positive(text))


def run(args: Namespace) -> int:
    """Serve, or measure, show and keep."""
    if args.serve:
        return _serve(args)
    if args.host is None:
        raise UsageError("concbench link: name the HOST (or ask for --serve)")
    if args.no_throughput and args.no_latency and not args.collective:
        raise UsageError("concbench link: nothing is left to measure")
    if args.collective:
        collective.require_torch(args.torch_python)
    if not args.no_throughput:
        throughput.iperf3_path()
    console = Console(stderr=args.json == "-", highlight=False, quiet=args.quiet)
    began = utc_stamp()
    found = measured(args, console)
    if args.into is not None:
        from concbench.store.notes import add_note

        add_note(args.into, "link", {**found, "at_utc": began})
    for line in lines(found):
        console.print(line, soft_wrap=True)
    _write(args, found, began)
    return 0


def measured(args: Namespace, console: Console) -> dict[str, Any]:
    """Return what was measured, as the payload holds it."""
    found: dict[str, Any] = {"link": args.name or args.host, "host": args.host}
    if not args.no_throughput:
        runs: list[throughput.Throughput] = []
        plans: list[tuple[throughput.Direction, int]] = [("there", 1), ("back", 1), ("both", 1)]
        if args.streams > 1:
            plans += [("there", args.streams), ("back", args.streams)]
        for direction, streams in plans:
            console.print(f"iperf3 {direction}, {streams} at once: {args.seconds} s", style="dim")
            runs += throughput.measure(args.host, args.iperf_port, direction, streams, args.seconds)
        found["throughput"] = to_builtins(runs)
    if not args.no_latency:
        times = echo.round_trips_ns(args.host, args.echo_port, args.message_bytes, args.count)
        found["round_trip"] = {"bytes": args.message_bytes, "ms": _summary(times)}
    if args.collective:
        times = collective.all_reduce_ns(
            args.host,
            args.collective_port,
            args.backend,
            args.message_bytes,
            args.count,
            python=args.torch_python,
        )
        found["all_reduce"] = {
            "bytes": args.message_bytes,
            "backend": args.backend,
            "ms": _summary(times),
        }
    return found


def of_sweep(host: str, name: str) -> dict[str, Any]:
    """Measure a sweep's link in passing: 200 round trips, and two seconds each way with iperf3.

    Returns what the study's `link` note holds. Raises TargetError where `concbench link --serve`
    does not answer there.
    """
    found = echo.round_trips_ns(host, echo.PORT, MESSAGE_BYTES, 200)
    note: dict[str, Any] = {"link": name, "host": host, "at_utc": utc_stamp()}
    note["round_trip"] = {"bytes": MESSAGE_BYTES, "ms": _summary(found)}
    with suppress(MissingExtra):
        ways: tuple[throughput.Direction, ...] = ("there", "back")
        runs = [throughput.measure(host, throughput.PORT, way, 1, 2) for way in ways]
        note["throughput"] = to_builtins([run for each in runs for run in each])
    return note


def _summary(times_ns: list[int]) -> dict[str, Any]:
    shown: dict[str, Any] = to_builtins(summary(time / 1e6 for time in times_ns))
    return shown


def lines(found: dict[str, Any]) -> list[str]:
    """Return what was measured, a line each."""
    told = [f"link {found['link']}"]
    for run in found.get("throughput", ()):
        one = msgspec.convert(run, throughput.Throughput)
        both = ", both ways at once" if one.direction == "both" else ""
        streams = f"{one.streams} streams" if one.streams > 1 else "1 stream"
        resent = "" if one.retransmits is None else f", {one.retransmits} retransmits"
        told.append(
            f"  {one.way:<6}{numbers.estimate_text(one.gb_per_s)} Gb/s  ({streams}{both}; "
            f"received {numbers.number(one.received_gb_per_s)} Gb/s, {one.length_s:.0f} s{resent})"
        )
    for key, name in (("round_trip", "round trip"), ("all_reduce", "all-reduce")):
        if key in found:
            told.append(_latency(name, found[key]))
    return told


def _latency(name: str, found: dict[str, Any]) -> str:
    ms = msgspec.convert(found["ms"], Summary)
    interval = ms.ci.get("p50")
    inside = f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""
    p99 = f"p99 {ms.p99:.3f}" if ms.p99 is not None else f"maximum {ms.max or 0:.3f}"
    median = ms.p50 if ms.p50 is not None else ms.mean or 0.0
    what = f"  {name} of {found['bytes']:,} bytes"
    return f"{what}: median {median:.3f} ms{inside}, {p99} ms (n = {ms.n:,})"


def _write(args: Namespace, found: dict[str, Any], began: str) -> None:
    if not args.json:
        return
    from concbench.observe.host import machine

    encoded = to_json(
        Result(
            tool_version=__version__,
            command="link",
            study=None if args.into is None else str(args.into),
            began_utc=began,
            machine=machine(__version__),
            payload={"link": found},
        )
    )
    if args.json == "-":
        sys.stdout.buffer.write(encoded)
        sys.stdout.buffer.flush()
        return
    try:
        Path(args.json).write_bytes(encoded)
    except OSError as error:
        raise OutputUnusable(f"cannot write {args.json}: {error.strerror}") from None


def _serve(args: Namespace) -> int:
    """Serve until SIGINT or SIGTERM; whatever was started is ended."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server = echo.EchoServer(args.bind, args.echo_port)
    children: list[subprocess.Popen[bytes]] = []
    rank: subprocess.Popen[bytes] | None = None
    try:
        if not args.no_throughput:
            command = [throughput.iperf3_path(), "-s", "-p", str(args.iperf_port), "-B", args.bind]
            children.append(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            )
        if args.collective:
            collective.require_torch(args.torch_python)
        print(f"serving on {args.bind}: echo {server.port}, iperf3 {args.iperf_port}", flush=True)
        while not stop.wait(0.2):
            if not args.no_throughput and children[0].poll() is not None:
                raise PortTaken(f"iperf3 ended: is port {args.iperf_port} taken on {args.bind}?")
            if args.collective and (rank is None or rank.poll() is not None):
                rank = _second_rank(args)
    finally:
        server.close()
        for child in [*children, *([] if rank is None else [rank])]:
            child.terminate()
            child.wait()
    return 0


def _second_rank(args: Namespace) -> subprocess.Popen[bytes]:
    where = (args.bind, args.collective_port, args.backend, args.message_bytes, args.count)
    command = collective.command(1, *where, python=args.torch_python)
    return subprocess.Popen(command, env=collective.environment(args.torch_python))
