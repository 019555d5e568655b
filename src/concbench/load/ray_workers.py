"""The same generators as actors of a Ray cluster: one a node, or as many as asked, placed by Ray.

Every node has a monotonic clock of its own. Its offset from the driver's is taken from the
quickest of many small exchanges before and after the round, half of whose round trip bounds the
error; stamps are put on the driver's clock when they are read. Reads come back in blocks, a few at
a time. A node that dies costs its own requests.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO, Any

import msgspec

from concbench import __version__
from concbench.clock import now_ns, utc_stamp
from concbench.errors import ConcbenchError, MissingExtra, UsageError
from concbench.load.clocks import aligned
from concbench.load.generator import Generator, LoadPlan, Progress, RawRound, run
from concbench.load.log import ReadLog
from concbench.load.loop import ClosedLoop, News, tell
from concbench.load.share import Brought, ShareJob, ShareResult, merged, plan_of, result_of, split
from concbench.load.signals import Signals, counted
from concbench.load.worker import wait_until

EXCHANGES = 40
HEAD_START_NS = 200_000_000
"""From "all are connected" to the start: enough for a message to reach every node."""

PLACE_S = 60.0
POLL_S = 0.25
STOP_S = 15.0
BLOCK_BYTES = 4 << 20
BLOCKS_AHEAD = 4


class Actor:
    """One generator in an actor. Its methods run in threads: `run` takes as long as the round."""

    def __init__(self) -> None:
        self._connected = threading.Event()
        self._go = threading.Event()
        self._start_ns: int | None = None
        self._generator: Generator | None = None
        self._progress: Progress | None = None
        self._raw: RawRound | None = None
        self._plan: LoadPlan | None = None
        self._news = News()
        self._payload = tempfile.TemporaryFile(prefix="concbench-", buffering=0)  # noqa: SIM115

    def about(self) -> tuple[str, str]:
        """Return the tool's version there and the host's name."""
        return __version__, socket.gethostname()

    def clock(self) -> int:
        """Return this node's monotonic ns."""
        return now_ns()

    def run(self, job: bytes) -> tuple[bytes | None, str | None]:
        """Run a share of a round; return its result, or why it was refused."""
        todo = msgspec.msgpack.decode(job, type=ShareJob)
        on_tick = self._note if todo.reports else None
        self._plan = plan = plan_of(todo, self._gate, self._payload, on_tick, self._news)
        try:
            self._raw = run(plan, self._take)
        except (ConcbenchError, OSError) as error:
            return None, f"{socket.gethostname()}: {error}"
        finally:
            self._connected.set()
        self._raw.log.spill()
        return msgspec.msgpack.encode(result_of(self._raw)), None

    def connected(self) -> None:
        """Return when all connections are open, or the round has ended before."""
        self._connected.wait()

    def begin(self, start_ns: int | None) -> None:
        """Start at that time of this node's clock; None stops instead, at any time."""
        self._start_ns = start_ns
        self._go.set()
        generator = self._generator
        if start_ns is None and generator is not None:
            with suppress(RuntimeError):  # its loop has ended
                generator.loop.call_soon_threadsafe(generator.interrupt)

    def progress(self) -> bytes | None:
        """Return the counts of the last tick."""
        return None if self._progress is None else msgspec.msgpack.encode(self._progress)

    def news(self) -> bytes | None:
        """Return what happened in a closed loop since this was last asked."""
        loop = None if self._plan is None else self._plan.loop
        return None if loop is None else msgspec.msgpack.encode(self._news.drain(loop))

    def blocks(self) -> Iterator[tuple[str, bytes]]:
        """Yield the reads' columns, then their payload."""
        assert self._raw is not None
        log = self._raw.log
        for column in (log.request, log.user_ns, log.size, log.kernel):
            view = memoryview(column).cast("B")
            for at in range(0, len(view), BLOCK_BYTES):
                yield "columns", bytes(view[at : at + BLOCK_BYTES])
        self._payload.seek(0)
        while part := self._payload.read(BLOCK_BYTES):
            yield "payload", part

    def _take(self, generator: Generator) -> None:
        self._generator = generator

    def _note(self, progress: Progress) -> None:
        self._progress = progress

    def _gate(self) -> int | None:
        self._connected.set()
        self._go.wait()
        if self._start_ns is not None:
            wait_until(self._start_ns)
        return self._start_ns


def run_on_ray(plan: LoadPlan, actors: int | None = None) -> RawRound:
    """Run one round on the cluster; `actors` None is one a node.

    The cluster is that of RAY_ADDRESS, else one is started on this machine. Raises MissingExtra
    without Ray, UsageError for a load that cannot be split, too small a cluster, or another
    version of the tool there.
    """
    ray = _ray()
    jobs = split(plan, actors or max(1, len(_nodes(ray))))
    with counted(wanted=plan.handle_signals) as signals:
        fleet = _Fleet(ray, plan, jobs, signals)
        try:
            return fleet.carry()
        finally:
            fleet.close()


def _nodes(ray: Any) -> list[str]:  # noqa: ANN401 - see `_ray`
    """Return the ids of the nodes that can carry load."""
    alive = (node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU"))
    return sorted(node["NodeID"] for node in alive)


def _ray() -> Any:  # noqa: ANN401 - the package has types of its own only where it is installed
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError:
        raise MissingExtra(
            "--workers ray needs Ray: pip install 'concbench[ray]', here and on every node"
        ) from None
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS") or None
        options = {} if address else {"include_dashboard": False}
        try:
            ray.init(address=address, log_to_driver=False, logging_level="error", **options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"no Ray cluster at {address or 'this machine'}: {text}") from None
    return ray


@dataclass(slots=True)
class _Member:
    """One actor. `lost` once it, or its node, is gone."""

    job: ShareJob
    actor: Any
    run: Any = None
    lost: bool = False
    refusal: str | None = None
    result: ShareResult | None = None
    before: tuple[int, int, int] = (0, 0, 0)
    after: tuple[int, int, int] = (0, 0, 0)
    files: tuple[IO[bytes], IO[bytes]] | None = None
    progress: Progress | None = None

    def aligned(self) -> ShareResult | None:
        """Return its result with its stamps on the driver's clock; None where it was lost."""
        clock = (self.before[:2], self.after[:2])
        return None if self.result is None else aligned(self.result, clock)

    @property
    def bound_ns(self) -> int:
        """How far its clock may be off the driver's."""
        return max(self.before[2], self.after[2])

    def open_log(self) -> ReadLog:
        """Read its reads back; its columns are needed no more after that."""
        assert self.result is not None
        assert self.files is not None
        columns, payload = self.files
        log = ReadLog.load(columns, payload, self.result.rows)
        columns.close()
        return log


@dataclass(slots=True)
class _Fleet:
    """All actors of one round."""

    ray: Any
    plan: LoadPlan
    jobs: Sequence[ShareJob]
    signals: Signals
    crew: list[_Member] = field(default_factory=list)
    interrupted: bool = False
    stopped_ns: int = 0

    def carry(self) -> RawRound:
        """Place, connect, align, start, wait, collect."""
        self._place()
        for member in self.crew:
            member.run = member.actor.run.remote(msgspec.msgpack.encode(member.job))
        self._await({m.actor.connected.remote(): m for m in self.crew}, lambda *_: None)
        for member in self._here():
            member.before = self._exchange(member)
        began_utc, start_ns = utc_stamp(), now_ns() + HEAD_START_NS
        for member in self._here():
            offset_ns = member.before[1]
            member.actor.begin.remote(None if self.stopped_ns else start_ns + offset_ns)
        self._await({m.run: m for m in self._here()}, self._ended)
        for member in self.crew:
            if member.refusal is not None:
                raise UsageError(member.refusal)
        for member in self._here():
            member.after = self._exchange(member)
            self._collect(member)
        return self._merged(start_ns, began_utc)

    def _merged(self, start_ns: int, began_utc: str) -> RawRound:
        brought = [Brought(m.job, m.aligned(), m.open_log) for m in self.crew]
        raw = merged(brought, start_ns, began_utc, interrupted=self.interrupted)
        came = [m for m in self.crew if m.result is not None]
        raw.shares = [
            replace(share, clock=(m.before[:2], m.after[:2]))
            for share, m in zip(raw.shares, came, strict=True)
        ]
        raw.clock_bound_ns = max((m.bound_ns for m in came), default=0)
        return raw

    def _place(self) -> None:
        remote = self.ray.remote(num_cpus=1, max_restarts=0, max_concurrency=6)
        kind = remote(Actor)
        nodes = _nodes(self.ray)
        affinity = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        for number, job in enumerate(self.jobs):
            # Soft: where a node has no core left, Ray takes another one.
            where = affinity(nodes[number % len(nodes)], soft=True)
            self.crew.append(_Member(job, kind.options(scheduling_strategy=where).remote()))
        try:
            told = self.ray.get([m.actor.about.remote() for m in self.crew], timeout=PLACE_S)
        except self.ray.exceptions.GetTimeoutError:
            raise UsageError(
                f"the cluster has no room for {len(self.crew)} load actors of one core each: "
                "ask for fewer with --procs, or add nodes"
            ) from None
        except self.ray.exceptions.RayError as error:
            raise UsageError(
                f"a load actor cannot start on the cluster: {_first_line(error)}; is concbench "
                "installed on every node?"
            ) from None
        for version, host in told:
            if version != __version__:
                raise UsageError(f"{host} has concbench {version}, this is {__version__}")

    def _here(self) -> list[_Member]:
        return [member for member in self.crew if not member.lost]

    def _ended(self, member: _Member, value: tuple[bytes | None, str | None]) -> None:
        body, member.refusal = value
        if body is not None:
            member.result = msgspec.msgpack.decode(body, type=ShareResult)

    def _await(self, waiting: dict[Any, _Member], take: Callable[[_Member, Any], None]) -> None:
        """Wait for each; who is gone is marked lost. Signals and the stop rule are looked at."""
        while waiting:
            ready, _ = self.ray.wait(list(waiting), num_returns=1, timeout=POLL_S)
            for reference in ready:
                member = waiting.pop(reference)
                value = self._get(member, reference)
                if not member.lost:
                    take(member, value)
            self._look(waiting)

    def _look(self, waiting: dict[Any, _Member]) -> None:
        if self.signals.count and not self.stopped_ns:
            self.interrupted = True
            self._stop()
        if self.stopped_ns and now_ns() - self.stopped_ns > STOP_S * 1e9:
            for member in waiting.values():
                self.ray.kill(member.actor)
        if self.plan.on_tick is None and self.plan.stop_when is None:
            return
        if self.plan.loop is not None:
            self._tell_news(self.plan.loop, list(waiting.values()))
        for member in waiting.values():
            body = self._get(member, member.actor.progress.remote())
            if body is not None:
                member.progress = msgspec.msgpack.decode(body, type=Progress)
        known = [m.progress for m in self.crew if m.progress is not None]
        if known:
            self._tell(Progress.total(known))

    def _tell_news(self, loop: ClosedLoop, here: Sequence[_Member]) -> None:
        first_worker = 0
        for member in self.crew:
            if member in here:
                body = self._get(member, member.actor.news.remote())
                if body is not None:
                    news = msgspec.msgpack.decode(body, type=News)
                    tell(loop, news, first_worker, member.before[1])
            first_worker += member.job.workers

    def _tell(self, progress: Progress) -> None:
        if self.plan.on_tick is not None:
            self.plan.on_tick(progress)
        rule = self.plan.stop_when
        if rule is not None and not self.stopped_ns and rule(progress):
            self._stop()

    def _stop(self) -> None:
        self.stopped_ns = now_ns()
        for member in self._here():
            member.actor.begin.remote(None)

    def _get(self, member: _Member, reference: Any) -> Any:  # noqa: ANN401 - what the actor returns
        """Return a value; marks the member lost where there will be none."""
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError:
            raise  # the node lives: what went wrong is ours
        except self.ray.exceptions.RayError:
            member.lost, member.result = True, None
            return None

    def _exchange(self, member: _Member) -> tuple[int, int, int]:
        """Return (its clock, its clock − ours, bound) in ns of the quickest of many exchanges."""
        best = (0, 0, 1 << 62)
        for _ in range(EXCHANGES):
            sent_ns = now_ns()
            theirs_ns = self._get(member, member.actor.clock.remote())
            took_ns = now_ns() - sent_ns
            if member.lost:
                return 0, 0, 0
            if took_ns // 2 < best[2]:
                best = (theirs_ns, theirs_ns - (sent_ns + took_ns // 2), took_ns // 2)
        return best

    def _collect(self, member: _Member) -> None:
        """Fetch its reads, a few blocks at a time."""
        if member.lost or member.result is None:
            return
        columns = tempfile.TemporaryFile(prefix="concbench-", buffering=0)  # noqa: SIM115
        payload = tempfile.TemporaryFile(prefix="concbench-", buffering=0)  # noqa: SIM115
        member.files = (columns, payload)
        blocks = member.actor.blocks.options(
            num_returns="streaming", _generator_backpressure_num_objects=BLOCKS_AHEAD
        ).remote()
        try:
            for reference in blocks:
                kind, body = self.ray.get(reference)
                (columns if kind == "columns" else payload).write(body)
        except self.ray.exceptions.RayError:
            member.lost, member.result, member.files = True, None, None
            columns.close()
            payload.close()

    def close(self) -> None:
        """End the actors."""
        for member in self.crew:
            with suppress(Exception):
                self.ray.kill(member.actor)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
