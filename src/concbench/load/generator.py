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
from typing import IO

from concbench.clock import cpu_ns, now_ns, realtime_offset_ns, sleep_s, utc_stamp
from concbench.domain import StampKind
from concbench.errors import Unreachable, UsageError
from concbench.load import stamps
from concbench.load.growth import CONNECTING_AT_ONCE, Growth
from concbench.load.limits import Limits
from concbench.load.log import SPILL_BYTES, ReadLog
from concbench.load.loop import ClosedLoop
from concbench.load.poller import poller
from concbench.load.script import Arrivals, Script
from concbench.load.stream import RECEIVE_BYTES, Peer, RawRequest, Stream
from concbench.load.tls import TlsStream

TICK_S = 0.05
OFFSET_EVERY_TICKS = 20
SPARE_FILES = 64
SPIN_NS = 1_500_000
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Progress:
    """Cheap counts for a display or a stop rule while the load is on.

    `in_flight` counts requests that were sent and have not ended.
    """

    elapsed_ns: int
    in_flight: int
    ended: int
    reads: int
    received_bytes: int

    @classmethod
    def total(cls, parts: Sequence[Progress]) -> Progress:
        """Return the sum over several generators."""
        return cls(
            elapsed_ns=max(each.elapsed_ns for each in parts),
            in_flight=sum(each.in_flight for each in parts),
            ended=sum(each.ended for each in parts),
            reads=sum(each.reads for each in parts),
            received_bytes=sum(each.received_bytes for each in parts),
        )


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What one round does. `timeout_ns` is per request from its sending; None is no limit.
    `inactivity_ns` is how long a request may go on without a byte.

    What the scripts share is `arrivals` in an open loop (workers are added when none is free for
    what is due), `loop` in a closed one. `stop_when` is asked each 50 ms; True ends the round.

    `gate` is called when all are connected, blocks, and returns the monotonic ns of the start, or
    None to send nothing: several generators begin together. `payload` is where the payload is
    spilled to. `stall` is for tests of the instrument: block the loop so many ns, every so many ns.
    """

    peer: Peer
    scripts: Sequence[Script]
    stamp: StampKind = "kernel"
    timeout_ns: int | None = None
    inactivity_ns: int | None = None
    on_tick: Callable[[Progress], None] | None = None
    stop_when: Callable[[Progress], bool] | None = None
    arrivals: Arrivals | None = None
    loop: ClosedLoop | None = None
    spill_bytes: int = SPILL_BYTES
    handle_signals: bool = True
    gate: Callable[[], int | None] | None = None
    payload: IO[bytes] | None = None
    stall: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """The reads of one of several generators. `first` is its first request's number in the round.

    `open_log` reads the log back; its `request` column counts from the share's own first. `clock`
    is set where its stamps are of another host's clock: (their ns, theirs − ours) before and after.
    """

    first: int
    requests: int
    offsets: list[tuple[int, int]]
    rows: int
    payload_bytes: int
    open_log: Callable[[], ReadLog]
    clock: tuple[tuple[int, int], tuple[int, int]] | None = None


@dataclass(slots=True)
class RawRound:
    """What one round left. `offsets` are samples of realtime − monotonic, at least one.

    Where several generators made it, `log` is empty and each has a share. `clock_bound_ns` says
    how far the clocks of several hosts may be off each other.
    """

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
    added_workers: int = 0
    growth_refused: str | None = None
    shares: list[Share] = field(default_factory=list)
    clock_bound_ns: int | None = None

    def parts(self) -> list[Share]:
        """Return the shares; the whole round as one where a single generator made it."""
        if self.shares:
            return self.shares
        log = self.log
        count = len(self.requests)
        return [Share(0, count, self.offsets, len(log), log.payload_bytes, lambda: log)]


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


def run(plan: LoadPlan, prepare: Callable[[Generator], None] | None = None) -> RawRound:
    """Run one round to its end, or to SIGINT or SIGTERM (then `interrupted` is set).

    `prepare` is given the generator before anything is connected. Raises UsageError when the
    machine's limits do not allow that many streams.
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
        if prepare is not None:
            prepare(generator)
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
        self.log = ReadLog(plan.payload)
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
        self._kind = Stream if plan.peer.tls is None else TlsStream
        self._streams = [self._kind(self, plan.peer, w, s) for w, s in enumerate(plan.scripts)]
        self._limits = Limits(plan.timeout_ns, plan.inactivity_ns)
        self._growth = None if plan.arrivals is None else Growth(self, plan.arrivals)

    async def run(self) -> RawRound:
        """Connect all, start the clock, run every script to its end."""
        if self.stamp == "kernel":
            stamps.hold()
        await self._connect_all()
        self._watch_signals()
        began_utc, cpu_before = utc_stamp(), cpu_ns()
        self._sample_offset()
        self._begin()
        self._next_tick_ns = now_ns() + int(TICK_S * 1e9)
        tick = self.loop.call_later(TICK_S, self._tick)
        try:
            if not self._interrupted:
                for stream in self._streams:
                    stream.advance(None)
                if self._growth is not None:
                    self._growth.watch()
            if self._streams:
                await self._finished
        finally:
            tick.cancel()
            end_ns = now_ns()
            self._finished.cancel()
            if self._growth is not None:
                await self._growth.end()
            for stream in self._streams:
                stream.close()
            self.poller.close()
        self._sample_offset()
        self._settle(end_ns)
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
            added_workers=0 if self._growth is None else self._growth.added,
            growth_refused=None if self._growth is None else self._growth.refused,
        )

    def _settle(self, end_ns: int) -> None:
        """Make the requests those that were due: no later ones, and those nobody could send too."""
        while self.requests and self.requests[-1].sent_ns is None:
            if self.requests[-1].due_ns <= end_ns:
                break
            self.requests.pop()
        if self._growth is not None:
            self.requests += self._growth.unsent(end_ns)

    async def _connect_all(self) -> None:
        for first in range(0, len(self._streams), CONNECTING_AT_ONCE):
            batch = self._streams[first : first + CONNECTING_AT_ONCE]
            await asyncio.gather(*(stream.connect() for stream in batch))

    def _begin(self) -> None:
        """Fix the start: now, or what the gate says."""
        plan = self._plan
        gate = (lambda: None) if self._interrupted else plan.gate or now_ns
        start_ns = gate()
        self.start_ns = now_ns() if start_ns is None else start_ns
        if start_ns is None:
            self.interrupt()
        if plan.stall is not None:
            self.loop.call_later(plan.stall[1] / 1e9, self._stall, *plan.stall)

    def _stall(self, length_ns: int, every_ns: int) -> None:
        sleep_s(length_ns / 1e9)
        self.loop.call_later(max(0, every_ns - length_ns) / 1e9, self._stall, length_ns, every_ns)

    def _watch_signals(self) -> None:
        if self._plan.handle_signals:
            for number in _SIGNALS:
                self.loop.add_signal_handler(number, self.interrupt)

    def interrupt(self) -> None:
        """Stop at once because of a signal."""
        self._interrupted = True
        self.stop()

    def stop(self) -> None:
        """Stop at once: what is in flight ends as `stopped`."""
        at_ns = now_ns()
        for stream in self._streams:
            stream.finish(at_ns, "stopped")
            stream.ended = True
        self._resolve()

    def add_worker(self, script: Script) -> Stream:
        """Add a worker while the load is on. Raises UsageError where no more files can be open."""
        ensure_files(len(self._streams) + 1)
        stream = self._kind(self, self._plan.peer, len(self._streams), script)
        self._streams.append(stream)
        return stream

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
        self._limits.look(now, self._streams)
        if self._plan.on_tick is not None or self._plan.stop_when is not None:
            progress = self._progress(now)
            if self._plan.on_tick is not None:
                self._plan.on_tick(progress)
            if self._plan.stop_when is not None and self._plan.stop_when(progress):
                self.stop()
        if not self._finished.done():
            self._next_tick_ns = now_ns() + int(TICK_S * 1e9)
            self.loop.call_later(TICK_S, self._tick)

    def _progress(self, now: int) -> Progress:
        current = [stream.current for stream in self._streams if stream.current is not None]
        return Progress(
            elapsed_ns=now - self.start_ns,
            in_flight=sum(1 for request in current if request.sent_ns is not None),
            ended=len(self.requests) - len(current),
            reads=len(self.log),
            received_bytes=self.log.payload_bytes,
        )
