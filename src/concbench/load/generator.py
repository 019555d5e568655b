"""The load generator: runs workers' scripts on one event loop and keeps every read.

`run` is the whole interface: a plan in, a raw round out. What the bytes meant is found out
afterwards (`measure.digest`).
"""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import socket
import ssl
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from concbench.clock import cpu_ns, now_ns, realtime_offset_ns, utc_stamp
from concbench.domain import StampKind
from concbench.errors import Unreachable, UsageError
from concbench.load import stamps
from concbench.load.log import SPILL_BYTES, ReadLog
from concbench.load.poller import poller
from concbench.load.script import Script
from concbench.load.stream import RECEIVE_BYTES, Peer, RawRequest, Stream
from concbench.load.tls import TlsStream

TICK_S = 0.05
OFFSET_EVERY_TICKS = 20
CONNECTING_AT_ONCE = 64
SPARE_FILES = 64
SPIN_NS = 1_500_000
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Progress:
    """Cheap counts for a display while the load is on."""

    elapsed_ns: int
    in_flight: int
    ended: int
    reads: int


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What one round does. `timeout_ns` is per request from its sending; None is no limit."""

    peer: Peer
    scripts: Sequence[Script]
    stamp: StampKind = "kernel"
    timeout_ns: int | None = None
    on_tick: Callable[[Progress], None] | None = None
    spill_bytes: int = SPILL_BYTES
    handle_signals: bool = True


@dataclass(slots=True)
class RawRound:
    """What one round left. `offsets` are samples of realtime − monotonic (see `stamps`)."""

    stamp: StampKind
    began_utc: str
    log: ReadLog
    requests: list[RawRequest]
    start_ns: int = 0
    end_ns: int = 0
    offsets: list[tuple[int, int]] = field(default_factory=list)
    loop_lag_ns: array[int] = field(default_factory=lambda: array("q"))
    client_cpu_ns: int = 0
    min_rtt_ns: int | None = None
    interrupted: bool = False


def resolve(hostname: str, port: int, tls: ssl.SSLContext | None) -> Peer:
    """Look the host up once, before anything is timed. Raises Unreachable with the name."""
    try:
        found = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreachable(
            f"no such host: {hostname} (check the name, or use its address)"
        ) from None
    for family, _, _, _, address in found:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(5)
            try:
                probe.connect(address)
            except OSError:
                continue
            return Peer(family, address, hostname, tls)
    family, _, _, _, address = found[0]
    return Peer(family, address, hostname, tls)


def ensure_files(streams: int) -> None:
    """Raise the soft limit of open files to what the streams need.

    Raises UsageError when the hard limit does not allow it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = streams + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= need:
        return
    if hard != resource.RLIM_INFINITY and hard < need:
        raise UsageError(
            f"{streams} streams need {need} open files, the hard limit is {hard}: "
            f"raise it (ulimit -Hn {need}) or ask for fewer"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))


def run(plan: LoadPlan) -> RawRound:
    """Run one round to its end, or to SIGINT or SIGTERM (then `interrupted` is set).

    Raises UsageError when the machine's limits do not allow that many streams.
    """
    ensure_files(len(plan.scripts))
    loop = _new_loop()
    # Closing the loop would leave the default actions behind, with which SIGTERM simply kills.
    handlers = [(n, signal.getsignal(n)) for n in _SIGNALS] if plan.handle_signals else []
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        generator = Generator(plan, loop)
        return loop.run_until_complete(generator.run())
    finally:
        gc.enable()
        gc.unfreeze()
        loop.close()
        for number, handler in handlers:
            signal.signal(number, handler)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


class Generator:
    """State of one round; the `Host` of its streams."""

    def __init__(self, plan: LoadPlan, loop: asyncio.AbstractEventLoop) -> None:
        self._plan = plan
        self.loop = loop
        self.poller = poller(loop)
        self.log = ReadLog()
        self.requests: list[RawRequest] = []
        self.start_ns = 0
        self.stamp: StampKind = plan.stamp
        self.spill_bytes = plan.spill_bytes
        self.min_rtt_ns: int | None = None
        self.buffer = bytearray(RECEIVE_BYTES)
        self.view = memoryview(self.buffer)
        self._offsets: list[tuple[int, int]] = []
        self._lag_ns = array("q")
        self._ended = 0
        self._interrupted = False
        self._finished = loop.create_future()
        self._ticks = 0
        self._next_tick_ns = 0
        kind = Stream if plan.peer.tls is None else TlsStream
        self._streams = [kind(self, plan.peer, w, s) for w, s in enumerate(plan.scripts)]

    async def run(self) -> RawRound:
        """Connect all, start the clock, run every script to its end."""
        if self.stamp == "kernel":
            stamps.hold()
        await self._connect_all()
        self._watch_signals()
        began_utc, cpu_before = utc_stamp(), cpu_ns()
        self._sample_offset()
        self.start_ns = now_ns()
        self._next_tick_ns = self.start_ns + int(TICK_S * 1e9)
        tick = self.loop.call_later(TICK_S, self._tick)
        try:
            for stream in self._streams:
                stream.advance(None)
            if self._streams:
                await self._finished
        finally:
            tick.cancel()
            end_ns = now_ns()
            self._finished.cancel()
            for stream in self._streams:
                stream.close()
            self.poller.close()
        self._sample_offset()
        return RawRound(
            stamp=self._plan.stamp,
            began_utc=began_utc,
            log=self.log,
            requests=self.requests,
            start_ns=self.start_ns,
            end_ns=end_ns,
            offsets=self._offsets,
            loop_lag_ns=self._lag_ns,
            client_cpu_ns=cpu_ns() - cpu_before,
            min_rtt_ns=self.min_rtt_ns,
            interrupted=self._interrupted,
        )

    async def _connect_all(self) -> None:
        # A listen queue is finite (often 128): more at once would be refused or resent late.
        for first in range(0, len(self._streams), CONNECTING_AT_ONCE):
            batch = self._streams[first : first + CONNECTING_AT_ONCE]
            await asyncio.gather(*(stream.connect() for stream in batch))

    def _watch_signals(self) -> None:
        if self._plan.handle_signals:
            for number in _SIGNALS:
                self.loop.add_signal_handler(number, self.interrupt)

    def interrupt(self) -> None:
        """Stop at once: what is in flight ends as `stopped`."""
        self._interrupted = True
        at_ns = now_ns()
        for stream in self._streams:
            stream.finish(at_ns, "stopped")
            stream.ended = True
        self._resolve()

    def worker_ended(self) -> None:
        """Count a worker whose script has ended; the last one ends the round."""
        self._ended += 1
        if self._ended >= len(self._streams):
            self._resolve()

    def _resolve(self) -> None:
        if not self._finished.done():
            self._finished.set_result(None)

    def wake_at(self, due_ns: int, wake: Callable[[], None]) -> None:
        """Call `wake` at that time: sleep until shortly before, then poll.

        The loop's timers are good to a millisecond; the last stretch is spent between reads.
        """
        left_ns = due_ns - now_ns()
        if left_ns <= 0:
            wake()
        elif left_ns > SPIN_NS:
            self.loop.call_later((left_ns - SPIN_NS) / 1e9, self.wake_at, due_ns, wake)
        else:
            self.loop.call_soon(self.wake_at, due_ns, wake)

    def _sample_offset(self) -> None:
        self._offsets.append((now_ns(), realtime_offset_ns()))

    def _tick(self) -> None:
        now = now_ns()
        self._lag_ns.append(max(0, now - self._next_tick_ns))
        self._ticks += 1
        if self._ticks % OFFSET_EVERY_TICKS == 0:
            self._sample_offset()
        if self._plan.timeout_ns is not None:
            self._expire(now, self._plan.timeout_ns)
        if self._plan.on_tick is not None:
            in_flight = sum(1 for stream in self._streams if stream.current is not None)
            done = len(self.requests) - in_flight
            self._plan.on_tick(Progress(now - self.start_ns, in_flight, done, len(self.log)))
        if not self._finished.done():
            self._next_tick_ns = now_ns() + int(TICK_S * 1e9)
            self.loop.call_later(TICK_S, self._tick)

    def _expire(self, now: int, timeout_ns: int) -> None:
        for stream in self._streams:
            current = stream.current
            if current is None:
                continue
            since = current.sent_ns if current.sent_ns is not None else current.due_ns
            if now - since > timeout_ns:
                stream.finish(now, "timeout")
