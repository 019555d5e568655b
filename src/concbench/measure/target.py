"""From what a person typed to a session that is ready: a URL, a lane of the plan, `embedded`."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from concbench.domain import TargetFacts, to_builtins
from concbench.engines.llamacpp_words import DIALECT
from concbench.engines.spec import Fact
from concbench.engines.spelling import canonical
from concbench.errors import UsageError
from concbench.measure.observed import observing
from concbench.measure.session import Session, calibrate, open_session, with_first_request
from concbench.measure.silence import FIRST_SILENT_S
from concbench.plan.file import load_plan
from concbench.plan.model import LanePlan, Plan
from concbench.serve.attached import local_pids
from concbench.serve.dossier import Origin, dossier
from concbench.serve.embedded import start_embedded
from concbench.serve.enrich import enriched
from concbench.serve.http import Access
from concbench.serve.launch import varied
from concbench.serve.probe import Patience, await_attached, fill_facts
from concbench.serve.recipes import load_recipe
from concbench.serve.running import ReadyLane, origin_of, running_lane
from concbench.serve.swap import LOAD_DEADLINE_S, ready_model
from concbench.serve.urls import looks_like_url
from concbench.serve.words import masked_extra

EMBEDDED = "embedded"
URL_WAIT_S = 30.0
"""How long a server at a URL may still load its model; a lane of the plan has longer."""

EMBEDDED_SPARE_TOK = 64
EMBEDDED_LEAST_CONTEXT_TOK = 1024
DEFAULT_PLANS = ("plan.toml", "concbench.toml")
"""Where lanes are looked up without --plan, in the working folder."""


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """How to reach a target and what every request has in common.

    `wait_s`, where it is given, is how long a server may still load, and refused connections are
    waited out too; `say` is told in a line that it is waited for.
    `silent_s` is how long the first request may be without a byte.
    `flags` are the engine's, set for this occasion: of the embedded engine or a lane started here.
    """

    target: str
    access: Access
    model: str | None = None
    ask: dict[str, Any] = field(default_factory=dict)
    content: str = "prose"
    seed: int = 0
    plan: Path | None = None
    wait_s: float | None = None
    say: Callable[[str], None] = lambda _: None
    flags: Mapping[str, Any] = field(default_factory=dict)
    silent_s: float = FIRST_SILENT_S


def is_embedded(target: str) -> bool:
    """Return whether the target is the engine that comes with the tool."""
    return target.strip().lower() == EMBEDDED


def embedded_context_tok(prompt_tok: int, output_tok: int | None) -> int:
    """Return a context a slot that holds the workload: prompt, answer and some spare tokens."""
    need = prompt_tok + (output_tok or 600) + EMBEDDED_SPARE_TOK
    return max(EMBEDDED_LEAST_CONTEXT_TOK, -(-need // 256) * 256)


@contextmanager
def ready(
    options: TargetOptions, *, slots: int, context_tok: int, log_folder: Path
) -> Iterator[Session]:
    """Yield a calibrated session; what is started here is always stopped after.

    `slots` and `context_tok` (a slot) count for the embedded engine only. A lane of the plan that
    runs already (`lanes up`, or a URL) is left running. Raises what attaching, starting and the
    first request raise.
    """
    if is_embedded(options.target):
        opened = _embedded_session(options, slots, context_tok, log_folder)
    elif (found := find_lane(options.target, options.plan)) is not None:
        lane, plan = found
        lane = varied(lane, options.flags) if options.flags else lane
        opened = _lane_session(lane, plan, options, log_folder)
    else:
        opened = _url_session(options)
    with opened as session:
        yield session


@contextmanager
def _embedded_session(
    options: TargetOptions, slots: int, context_tok: int, log_folder: Path
) -> Iterator[Session]:
    """Yield a session on the engine that comes with the tool; its facts get the teardown."""
    log_folder.mkdir(parents=True, exist_ok=True)
    session: Session | None = None
    size, flags = embedded_size(options.flags, slots, context_tok)
    lane = start_embedded(*size, log_folder / "embedded.log", flags)
    try:
        with lane:
            session = open_session(lane.attached, Access(), dict(options.ask))
            session.alive = lane.alive
            session.facts = lane.facts
            origin = Origin(lane.recipe.spoken, cold_start=lane.cold_start)
            session.dossier = dossier(lane.attached, lane.facts, origin)
            pids = local_pids(lane.attached.root)
            with observing(session, Access(), log=lane.log_path, engine_pids=pids):
                yield _prepared(session, options)
    finally:
        _put_teardown(session, lane.facts)


@contextmanager
def _url_session(options: TargetOptions) -> Iterator[Session]:
    """Yield a session on what answers at a URL, once it has loaded its model."""
    wait_s = URL_WAIT_S if options.wait_s is None else options.wait_s
    met = await_attached(
        options.target,
        options.access,
        options.model,
        deadline_s=wait_s,
        patience=_patience(options),
    )
    attached = ready_model(met.attached, options.access, max(wait_s, LOAD_DEADLINE_S))
    pids = local_pids(attached.root)
    attached = enriched(attached, pids, None)
    session = open_session(attached, options.access, dict(options.ask))
    session.dossier = dossier(attached, attached.facts, Origin())
    with observing(session, options.access, engine_pids=pids):
        _prepared(session, options)
        _put_load_wait(session, met.ready_ns - met.listening_ns + session.loading_waited_ns)
        yield session


def _put_load_wait(session: Session, waited_ns: int) -> None:
    """Add to what is known of a server how long it was waited for while it still loaded."""
    known = {"load_wait_s": Fact(round(waited_ns / 1e9, 4), "measured")}
    session.facts, more = fill_facts(session.facts, known)
    session.extra = {**session.extra, **more}
    session.dossier["extra"] = to_builtins(masked_extra(session.extra))


def embedded_size(
    flags: Mapping[str, Any], slots: int, context_tok: int
) -> tuple[tuple[int, int], dict[str, Any]]:
    """Return (slots, context a slot in tokens) of the embedded engine, and the other flags.

    `parallel` and `ctx-size`, which is the whole context over all slots, stand before the defaults
    given. Raises UsageError for values that are no whole numbers from 1.
    """
    named = {canonical(name, DIALECT): value for name, value in flags.items()}
    for name in ("parallel", "ctx-size"):
        value = named.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name}={value}: expected a whole number of at least 1")
    parallel = named.pop("parallel", slots)
    whole = named.pop("ctx-size", parallel * context_tok)
    return (parallel, max(1, whole // parallel)), named


def find_lane(target: str, plan: Path | None) -> tuple[LanePlan, Plan] | None:
    """Return the lane that a target names with its plan, or None where the target is a URL.

    Without `plan`, `plan.toml` or `concbench.toml` of the working folder is read, and only for what
    does not look like a URL. Raises UsageError for a name that no plan has, PlanError for a plan
    that is wrong.
    """
    name = target.strip()
    if plan is None and looks_like_url(name):
        return None
    path = plan or next((Path(one) for one in DEFAULT_PLANS if Path(one).is_file()), None)
    if path is None:
        raise UsageError(
            f"{name!r} is no URL (http://HOST:PORT), and there is no {' or '.join(DEFAULT_PLANS)} "
            "here whose lane it could be: give --plan PLAN.toml"
        )
    loaded = load_plan(path)
    if name in loaded.lanes:
        return loaded.lanes[name], loaded
    if looks_like_url(name):
        return None
    near = difflib.get_close_matches(name, loaded.lanes, 1)
    hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(loaded.lanes)}"
    raise UsageError(f"{path} has no lane {name!r}: {hint}")


@contextmanager
def _lane_session(
    lane: LanePlan, plan: Plan, options: TargetOptions, log_folder: Path
) -> Iterator[Session]:
    """Yield a session on a lane of the plan; its facts get the teardown where it was started."""
    folder = Path(plan.path).parent
    if lane.reference is not None:
        load_recipe(folder / lane.reference)  # a mistake there is told before an engine is started
    asked = options.model is not None and lane.way == "url"
    chosen = msgspec.structs.replace(lane, model=options.model) if asked else lane
    log_path = log_folder / f"{lane.name}.log"
    session: Session | None = None
    running: ReadyLane | None = None
    try:
        with running_lane(
            chosen,
            plan.path,
            options.access,
            log_path,
            wait_s=options.wait_s,
            endpoint=options.ask.get("endpoint", "chat"),
            patience=_patience(options),
        ) as running:
            session = open_session(running.attached, options.access, dict(options.ask))
            session.alive = running.alive
            session.facts = running.facts
            origin = origin_of(running, chosen, folder)
            session.dossier = dossier(running.attached, running.facts, origin)
            log = log_path if log_path.is_file() else None
            pids = local_pids(running.attached.root)
            with observing(session, options.access, log=log, engine_pids=pids):
                yield _prepared(session, options)
    finally:
        _put_teardown(session, running.facts if running is not None else None)


def _patience(options: TargetOptions) -> Patience:
    return Patience(refused=options.wait_s is not None, say=options.say)


def _put_teardown(session: Session | None, facts: TargetFacts | None) -> None:
    """Add to a session's facts how its engine ended, also where an error ended it all."""
    if session is not None and facts is not None:
        session.facts = msgspec.structs.replace(session.facts, teardown=facts.teardown)


def _prepared(session: Session, options: TargetOptions) -> Session:
    if options.wait_s is not None:
        session.loading_wait_ns = int(options.wait_s * 1e9)
    session.silent_s = options.silent_s
    calibrate(session, options.content, options.seed)
    facts = session.facts
    if facts.first_request_s is None:
        session.facts = with_first_request(session)
    return session
