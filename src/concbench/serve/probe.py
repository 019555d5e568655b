"""Meeting a server: which engine it is, what it serves, and whether a token really comes.

Everything here happens before the measured load. The engines' own modules say what to ask and how
to read the answers; this module asks.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from concbench.clock import now_ns, sleep_s
from concbench.domain import TargetFacts
from concbench.engines.registry import ALL_PROBES, by_name, recognise
from concbench.engines.spec import Answer, EngineSpec, Fact
from concbench.errors import NotReady, UsageError, WrongModel
from concbench.serve.http import Access, Http, NoAnswer, parse_json
from concbench.serve.refusals import no_answer_error, status_error, wrong_path
from concbench.serve.urls import DEFAULT_PREFIX, TargetUrl, parse_target

MODELS = "/models"
POLL_S = 0.02

_FACT_KEYS = frozenset(TargetFacts.__struct_fields__) - {"lane", "engine", "base_url", "facts_from"}

Alive = Callable[[], str | None]
"""None while the server's process lives, otherwise what ended it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How a server that was not started here is waited for.

    `refused` waits out refused connections too: some engines listen only once they are ready.
    `say` is told once, in a line, what is waited for.
    """

    refused: bool = False
    say: Callable[[str], None] = lambda _: None


IMPATIENT = Patience()
"""A refused connection is an error at once, and nobody is told of the wait."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What is known of a server that was started here: its argv and what it has logged."""

    argv: Sequence[str] | None = None
    log_lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Attached:
    """A server that was met. `answers` are keyed by probe; `extra` holds facts of this engine only.

    `model` is the id that requests must carry.
    """

    url: TargetUrl
    http: Http
    spec: EngineSpec
    answers: Mapping[str, Answer]
    facts: TargetFacts
    model: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The root URL, where metrics and probes are."""
        return self.url.root

    @property
    def api_prefix(self) -> str:
        """The API's version as a path, such as `/v1`."""
        return self.url.api_prefix


@dataclass(frozen=True, slots=True)
class Met:
    """A server that was waited for: when it first answered anything, and when it listed models."""

    attached: Attached
    listening_ns: int
    ready_ns: int


def attach(
    target: str,
    access: Access,
    model: str | None = None,
    engine: str | None = None,
    *,
    lane: str = "target",
    launch: Launch | None = None,
) -> Attached:
    """Meet the server at a URL.

    Raises UsageError for a bad URL, an unknown engine, or a model left open where there are
    several; Unreachable, Refused, WrongPath, WrongModel for what the server makes of it; NotReady
    while it still loads.
    """
    url = parse_target(target)
    named = by_name(engine) if engine else None
    http = Http(url.root, access)
    listing = http.get(url.api_prefix + MODELS)
    _require_answer(listing, url)
    answers = _probe(http, named.probes if named else ALL_PROBES)
    answers["/v1/models"] = listing
    spec = named or recognise(answers)
    offers = _offers(listing, url, http, surely=spec.recognise(answers) == 2)
    known = launch or Launch()
    facts = spec.describe(answers, known.argv, known.log_lines)
    chosen = choose_model(offers, model, url.root, fallback=facts.get("model"))
    base = TargetFacts(lane=lane, engine=spec.name, base_url=url.root)
    described, extra = fill_facts(base, {**facts, "model": Fact(chosen, "endpoint:/v1/models")})
    if known.argv is not None:
        described = msgspec.structs.replace(described, launch=list(known.argv))
    return Attached(url, http, spec, answers, described, chosen, extra)


def fill_facts(
    facts: TargetFacts, found: Mapping[str, Fact]
) -> tuple[TargetFacts, dict[str, object]]:
    """Return the facts with what was found filled in, and what has no key of its own.

    `facts_from` keeps the kind of source (`endpoint`, `log`, `argv`, …) of both, without its path.
    """
    known = {key: fact.value for key, fact in found.items() if key in _FACT_KEYS}
    sources = {key: fact.source.partition(":")[0] for key, fact in found.items()}
    filled = msgspec.structs.replace(facts, **known, facts_from={**facts.facts_from, **sources})
    return filled, {key: fact.value for key, fact in found.items() if key not in known}


def choose_model(
    offers: Mapping[str, Sequence[str]] | None,
    asked: str | None,
    where: str,
    fallback: Fact | None = None,
) -> str:
    """Return the id to ask for. `offers` maps ids to their aliases, None where there is no list.

    Raises WrongModel when the one asked for is not there or nothing is, UsageError when the choice
    is open.
    """
    if offers is None:
        chosen = asked or (fallback.value if fallback else None)
        if not isinstance(chosen, str) or not chosen:
            raise UsageError(f"{where} lists no models: name one with --model")
        return chosen
    names = {alias: model for model, aliases in offers.items() for alias in aliases}
    names.update({model: model for model in offers})
    if asked is not None:
        for spelling in (asked, f"{asked}:latest"):
            if spelling in names:
                return names[spelling]
        raise WrongModel(_no_such_model(asked, list(offers), where))
    if not offers:
        raise WrongModel(f"{where} serves no model: load one there first")
    if len(offers) > 1:
        raise UsageError(f"{where} serves several models: choose with --model from {_some(offers)}")
    return next(iter(offers))


def await_attached(
    target: str,
    access: Access,
    model: str | None = None,
    engine: str | None = None,
    *,
    deadline_s: float,
    alive: Alive | None = None,
    lane: str = "target",
    launch: Callable[[], Launch] = Launch,
    patience: Patience = IMPATIENT,
) -> Met:
    """Wait while the server loads, then attach to it.

    With `alive` the server was started here: refused connections and missing paths are waited out
    too, and its death ends the wait. `patience` is for one that was not. Raises NotReady when it
    dies or the time is over, and what `attach` raises otherwise.
    """
    url = parse_target(target)
    spec = by_name(engine) if engine else None
    http = Http(url.root, access)
    end_ns = now_ns() + int(deadline_s * 1e9)
    listening_ns = 0
    told = False
    while True:
        if alive and (died := alive()):
            raise NotReady(died)
        answer = http.get(url.api_prefix + MODELS)
        if answer.status and not listening_ns:
            listening_ns = now_ns()
        waits = still_loading(answer, spec)
        if alive is None:
            waits = waits and (answer.status != 0 or patience.refused)
        elif answer.status == 404:
            waits = True
        if not waits:
            break
        said = _said(http, answer)
        if now_ns() > end_ns:
            raise NotReady(f"{url.root} was not ready after {deadline_s:g} s; last: {said}")
        if not told:
            told = True
            patience.say(f"waiting up to {deadline_s:g} s for {url.root}, which says: {said}")
        sleep_s(POLL_S)
    ready_ns = now_ns()
    met = attach(target, access, model, engine, lane=lane, launch=launch())
    return Met(met, listening_ns, ready_ns)


def still_loading(answer: Answer, spec: EngineSpec | None) -> bool:
    """Return whether this is how a server that still loads answers."""
    if isinstance(answer, NoAnswer):
        return answer.reason in ("refused", "reset", "timeout", "cut")
    return answer.status in (502, 503, 504) or (spec is not None and spec.loading(answer))


def _require_answer(listing: Answer, url: TargetUrl) -> None:
    """Raise for a server that is not there, wants a key, or still loads."""
    called = url.api + MODELS
    if isinstance(listing, NoAnswer):
        raise no_answer_error(listing, url.root)
    if listing.status in (502, 503, 504):
        raise NotReady(f"{called} answered {listing.status}: the server is still loading its model")
    if listing.status in (401, 403) or 300 <= listing.status < 400:
        raise status_error(listing, called, "")


def _probe(http: Http, paths: Sequence[str]) -> dict[str, Answer]:
    """Ask all paths but the model list; gives up after two time-outs, which cost too much."""
    answers: dict[str, Answer] = {}
    late = 0
    for path in paths:
        if path == "/v1/models":
            continue
        answer = NoAnswer(0, {}, b"", "timeout", "not asked") if late >= 2 else http.get(path)
        late += isinstance(answer, NoAnswer) and answer.reason == "timeout"
        answers[path] = answer
    return answers


def _offers(
    listing: Answer, url: TargetUrl, http: Http, *, surely: bool
) -> dict[str, tuple[str, ...]] | None:
    """Return ids and aliases, or None where an engine that is surely one has no list."""
    if listing.ok:
        value = parse_json(listing)
        entries = value.get("data") if isinstance(value, dict) else value
        if isinstance(entries, list):
            return {
                entry["id"]: _aliases(entry)
                for entry in entries
                if isinstance(entry, dict) and isinstance(entry.get("id"), str)
            }
    # An API path that was typed, and is not there, is a slip whatever the engine.
    if surely and (listing.status != 404 or url.api_prefix == DEFAULT_PREFIX):
        return None
    raise wrong_path(listing, url, http)


def _aliases(entry: Mapping[str, Any]) -> tuple[str, ...]:
    aliases = entry.get("aliases")
    return tuple(filter(lambda one: isinstance(one, str), aliases)) if aliases else ()


def _no_such_model(asked: str, offered: Sequence[str], where: str) -> str:
    if not offered:
        return f"{where} serves no model, so not {asked!r}: load it there first"
    tails = {model.rsplit("/", 1)[-1].lower(): model for model in offered}
    near = difflib.get_close_matches(asked.rsplit("/", 1)[-1].lower(), tails, 1, 0.4)
    hint = f"; the nearest is {tails[near[0]]}" if near else ""
    return f"{where} does not serve {asked!r}; it has {_some(offered)}{hint}"


def _some(models: Sequence[str] | Mapping[str, object], limit: int = 12) -> str:
    names = list(models)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _said(http: Http, answer: Answer) -> str:
    text = http.excerpt(answer)
    return text if not answer.status else f"{answer.status} {text}".rstrip()
