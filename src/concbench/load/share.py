"""One generator's share of a round: what it is to send as data, and what it brings back.

A process or a machine of its own cannot be given scripts, so a plan is split into plain records;
what comes back is put together into one raw round. Requests are numbered anew, each share keeps
its own clock offsets.
"""

from __future__ import annotations

import socket
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from msgspec import Struct

from concbench.domain import StampKind
from concbench.errors import UsageError
from concbench.load.generator import LoadPlan, Progress, RawRound, Share
from concbench.load.log import ReadLog
from concbench.load.loop import ClosedLoop, Listener, News
from concbench.load.script import Arrivals, Once, Outgoing, Script, Send
from concbench.load.stream import Peer, RawRequest
from concbench.load.tls import context

LOST_DETAIL = "the process that carried this request died"


class ShareJob(Struct, kw_only=True):
    """What one generator is to do. `due_ns` has one entry a request, from the common start.

    With `workers` 0 each request has a worker of its own; otherwise that many take them in order
    as they fall due, and more are added when they are needed. With `step_ns` they are a closed
    loop's, which takes the requests in order at no due time.
    """

    family: int
    address: list[str | int]
    hostname: str
    tls: bool = False
    ca: str | None = None
    insecure: bool = False
    stamp: StampKind
    timeout_ns: int | None = None
    inactivity_ns: int | None = None
    spill_bytes: int
    stall: tuple[int, int] | None = None
    reports: bool = False
    workers: int = 0
    step_ns: int = 0
    requests: list[Outgoing]
    due_ns: list[int]


class ShareResult(Struct, kw_only=True):
    """What one generator brings back beside its reads. `rows` counts them."""

    began_utc: str
    start_ns: int
    end_ns: int
    requests: list[RawRequest]
    offsets: list[tuple[int, int]]
    loop_lag_ns: list[int]
    client_cpu_ns: int
    min_rtt_ns: int | None
    rows: int
    payload_bytes: int
    interrupted: bool = False
    added_workers: int = 0
    growth_refused: str | None = None


@dataclass(slots=True)
class Brought:
    """A share that came back: its job, its result (None: it was lost) and where its reads are."""

    job: ShareJob
    result: ShareResult | None
    open_log: Callable[[], ReadLog]


def split(plan: LoadPlan, shares: int) -> list[ShareJob]:
    """Return a plan as that many jobs or fewer, none without a request.

    Raises UsageError for scripts that decide while the load is on what comes next: they cannot be
    taken apart.
    """
    if plan.loop is not None:
        return [_job(plan, part, n, plan.loop.step_ns) for part, n in _dealt(plan.loop, shares)]
    queue = plan.arrivals
    if queue is not None:
        sends = queue.sends
        parts = [sends[k::shares] for k in range(min(shares, max(1, len(sends))))]
        workers = max(1, -(-len(plan.scripts) // len(parts)))
    else:
        sends = [_only(script) for script in plan.scripts]
        count = min(shares, max(1, len(sends)))
        edges = [len(sends) * k // count for k in range(count + 1)]
        parts = [sends[edges[k] : edges[k + 1]] for k in range(count)]
        workers = 0
    return [_job(plan, part, workers) for part in parts]


def _dealt(loop: ClosedLoop, shares: int) -> list[tuple[list[Send], int]]:
    """Deal a loop's workers, their first requests and the later ones out, none without a worker."""
    ready = [Send(request) for request in loop.ready()]
    first, later = ready[: loop.workers], ready[loop.workers :]
    count = min(shares, loop.workers)
    return [(first[k::count] + later[k::count], len(first[k::count])) for k in range(count)]


def _job(plan: LoadPlan, part: Sequence[Send], workers: int, step_ns: int = 0) -> ShareJob:
    return ShareJob(
        family=int(plan.peer.family),
        address=list(plan.peer.address),  # type: ignore[arg-type]
        hostname=plan.peer.hostname,
        tls=plan.peer.tls is not None,
        ca=None if plan.peer.ca is None else str(plan.peer.ca),
        insecure=plan.peer.insecure,
        stamp=plan.stamp,
        timeout_ns=plan.timeout_ns,
        inactivity_ns=plan.inactivity_ns,
        spill_bytes=plan.spill_bytes,
        stall=plan.stall,
        reports=plan.on_tick is not None or plan.stop_when is not None,
        workers=workers,
        step_ns=step_ns,
        requests=[send.request for send in part],
        due_ns=[send.due_ns or 0 for send in part],
    )


def can_split(plan: LoadPlan) -> bool:
    """Return whether `split` takes the plan."""
    shared = plan.arrivals is not None or plan.loop is not None
    return shared or all(isinstance(one, Once) for one in plan.scripts)


def _only(script: Script) -> Send:
    if not isinstance(script, Once) or script.send is None:
        raise UsageError(
            "this load cannot be split over processes: its workers share what comes next; "
            "leave --procs and --workers out"
        )
    return script.send


def plan_of(
    job: ShareJob,
    gate: Callable[[], int | None],
    payload: IO[bytes],
    on_tick: Callable[[Progress], None] | None = None,
    listener: Listener | None = None,
) -> LoadPlan:
    """Return the load plan of a job, in the process that is to run it.

    `listener` is told what a closed loop's workers do.
    """
    tls = None
    if job.tls:
        tls = context(None if job.ca is None else Path(job.ca), insecure=job.insecure)
    scripts: list[Script]
    loop = _loop_of(job, listener or News()) if job.step_ns else None
    arrivals = Arrivals(job.requests, job.due_ns) if job.workers and loop is None else None
    if loop is not None:
        scripts = loop.scripts()
    elif arrivals is not None:
        scripts = [arrivals.worker() for _ in range(job.workers)]
    else:
        scripts = [Once(r, due) for r, due in zip(job.requests, job.due_ns, strict=True)]
    return LoadPlan(
        peer=Peer(socket.AddressFamily(job.family), tuple(job.address), job.hostname, tls),
        scripts=scripts,
        stamp=job.stamp,
        timeout_ns=job.timeout_ns,
        inactivity_ns=job.inactivity_ns,
        on_tick=on_tick,
        arrivals=arrivals,
        loop=loop,
        spill_bytes=job.spill_bytes,
        handle_signals=False,
        gate=gate,
        payload=payload,
        stall=job.stall,
    )


def _loop_of(job: ShareJob, listener: Listener) -> ClosedLoop:
    left = deque(job.requests)
    return ClosedLoop(
        workers=job.workers,
        step_ns=job.step_ns,
        take=lambda: left.popleft() if left else None,
        ready=lambda: list(left),
        listener=listener,
    )


def result_of(raw: RawRound) -> ShareResult:
    """Return what a share's raw round holds beside its reads."""
    return ShareResult(
        began_utc=raw.began_utc,
        start_ns=raw.start_ns,
        end_ns=raw.end_ns,
        requests=raw.requests,
        offsets=raw.offsets,
        loop_lag_ns=list(raw.loop_lag_ns),
        client_cpu_ns=raw.client_cpu_ns,
        min_rtt_ns=raw.min_rtt_ns,
        rows=len(raw.log),
        payload_bytes=raw.log.payload_bytes,
        interrupted=raw.interrupted,
        added_workers=raw.added_workers,
        growth_refused=raw.growth_refused,
    )


def merged(
    brought: Sequence[Brought], start_ns: int, began_utc: str, *, interrupted: bool
) -> RawRound:
    """Put shares together into one round; what a lost one carried is `stopped` and `lost`."""
    known = [share.result for share in brought if share.result is not None]
    rtts = [each.min_rtt_ns for each in known if each.min_rtt_ns is not None]
    lags = array("q", [lag for each in known for lag in each.loop_lag_ns])
    raw = RawRound(
        stamp=brought[0].job.stamp if brought else "user",
        began_utc=began_utc,
        log=ReadLog(),
        requests=[],
        start_ns=start_ns,
        end_ns=max((each.end_ns for each in known), default=start_ns),
        loop_lag_ns=lags,
        client_cpu_ns=sum(each.client_cpu_ns for each in known),
        min_rtt_ns=min(rtts, default=None),
        interrupted=interrupted,
        added_workers=sum(each.added_workers for each in known),
        growth_refused=next((r.growth_refused for r in known if r.growth_refused), None),
    )
    workers = 0
    for share in brought:
        first, got = len(raw.requests), share.result
        mine = _lost(share.job, start_ns) if got is None else got.requests
        raw.requests += [
            replace(one, number=first + n, worker=one.worker + workers if one.worker >= 0 else -1)
            for n, one in enumerate(mine)
        ]
        workers += 1 + max((one.worker for one in mine), default=-1)
        if got is not None:
            raw.shares.append(
                Share(first, len(mine), got.offsets, got.rows, got.payload_bytes, share.open_log)
            )
    return raw


def _lost(job: ShareJob, start_ns: int) -> list[RawRequest]:
    """Return what a lost share was to carry; of a closed loop's, one request a worker.

    How many of them it had carried before is not known.
    """
    sends = list(zip(job.requests, job.due_ns, strict=True))
    if job.step_ns:
        sends = sends[: job.workers]
    return [
        RawRequest(
            number=number,
            worker=-1 if job.workers and not job.step_ns else number,
            prompt=request.prompt,
            stream=request.stream,
            asked_output_tok=request.asked_output_tok,
            due_ns=start_ns + due_ns,
            detail=LOST_DETAIL,
            lost=True,
        )
        for number, (request, due_ns) in enumerate(sends)
    ]
