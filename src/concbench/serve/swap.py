"""Servers that load models on demand: llama-swap, and llama.cpp's router.

Loading is done and timed here, before any measured request, so that no TTFT holds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from msgspec import Struct

from concbench.clock import now_ns, sleep_s
from concbench.engines.llama_swap import CONCURRENCY_LIMIT
from concbench.engines.reading import dig
from concbench.engines.spec import Answer, Fact
from concbench.errors import NotReady, TargetError, UsageError
from concbench.serve.http import Access, parse_json
from concbench.serve.probe import Attached, attach, fill_facts, still_loading
from concbench.serve.readiness import wait_for_token

LLAMA_SWAP, ROUTER = "llama-swap", "router"
LOAD_DEADLINE_S = 600.0
UNLOAD_DEADLINE_S = 60.0
_POLL_S = 0.05
_GONE = ("unloaded", "stopped", "shutdown", "failed")
_BEHIND = (
    "quantization",
    "kv_cache_dtype",
    "max_context_tok",
    "slots",
    "kv_capacity_tok",
    "speculation",
    "prefix_caching",
    "eager",
)
_UP = ("ready", "loaded", "sleeping")


class Swap(Struct, frozen=True, kw_only=True):
    """One change of the model that is loaded. Times in seconds, None where a step did not happen.

    `unload_s` until the old one was gone, `load_s` from asking for the new one until it was listed
    as loaded, `first_token_s` what the first request took then, `total_s` all of it.
    """

    model: str
    before: list[str]
    unload_s: float | None = None
    load_s: float | None = None
    first_token_s: float | None = None
    total_s: float = 0.0
    note: str | None = None


def kind_of(attached: Attached) -> str | None:
    """Return `llama-swap`, `router`, or None for a server that holds its model for good."""
    if attached.spec.name == LLAMA_SWAP:
        return LLAMA_SWAP
    return ROUTER if attached.extra.get("router") is True else None


def states(attached: Attached) -> dict[str, str]:
    """Return the state of each model that the server names, in its own words."""
    if kind_of(attached) == LLAMA_SWAP:
        running = dig(parse_json(attached.http.get("/running")), "running")
        rows = running if isinstance(running, list) else []
        return {str(dig(row, "model")): str(dig(row, "state")) for row in rows}
    listed = dig(parse_json(attached.http.get("/models")), "data")
    rows = listed if isinstance(listed, list) else []
    return {str(dig(row, "id")): str(dig(row, "status", "value")) for row in rows}


def loaded(attached: Attached) -> list[str]:
    """Return the models that are loaded now."""
    return [model for model, state in states(attached).items() if state in _UP]


def unload(attached: Attached, model: str | None = None) -> float | None:
    """Unload a model, or all; return the seconds until it was gone, None where it stays listed.

    Raises TargetError when the server refuses.
    """
    began_ns = now_ns()
    for name in [model] if model else loaded(attached):
        answer = _unload(attached, name)
        if not answer.ok and answer.status != 404:
            raise TargetError(
                f"{attached.root} would not unload {name}: {attached.http.excerpt(answer)}"
            )
    end_ns = began_ns + int(UNLOAD_DEADLINE_S * 1e9)
    while True:
        left = {name: state for name, state in states(attached).items() if state not in _GONE}
        if (model not in left) if model else not left:
            return (now_ns() - began_ns) / 1e9
        if now_ns() > end_ns:
            return None
        sleep_s(_POLL_S)


def _unload(attached: Attached, model: str) -> Answer:
    if kind_of(attached) == ROUTER:
        return attached.http.post_json("/models/unload", {"model": model}, timeout_s=60.0)
    path = f"/api/models/unload/{quote(model)}"
    answer = attached.http.post_json(path, {}, timeout_s=60.0)
    # Older releases only know to unload all of them.
    return attached.http.get("/unload", timeout_s=60.0) if answer.status in (404, 405) else answer


def load(attached: Attached, model: str, deadline_s: float = LOAD_DEADLINE_S) -> float:
    """Load a model without a request for tokens; return the seconds until it is listed as loaded.

    Raises NotReady when it fails or takes too long, in the server's own words.
    """
    began_ns = now_ns()
    end_ns = began_ns + int(deadline_s * 1e9)
    if kind_of(attached) == LLAMA_SWAP:
        # Any path of the engine behind loads it; /health says nothing that would be counted.
        answer = attached.http.get(
            f"/upstream/{quote(model)}/health", timeout_s=max(1.0, deadline_s)
        )
    else:
        answer = attached.http.post_json("/models/load", {"model": model}, timeout_s=60.0)
    if not answer.ok and not still_loading(answer, attached.spec):
        raise NotReady(
            f"{attached.root} could not load {model}: {answer.status} "
            f"{attached.http.excerpt(answer)}"
        )
    while (state := states(attached).get(model)) not in _UP:
        if state == "failed" or now_ns() > end_ns:
            raise NotReady(f"{attached.root}: {model} is {state or 'not listed'} after loading it")
        sleep_s(_POLL_S)
    return (now_ns() - began_ns) / 1e9


def swap_to(
    attached: Attached, model: str, deadline_s: float = LOAD_DEADLINE_S
) -> tuple[Attached, Swap]:
    """Unload what is loaded, load this model, ask it for a token; return what each step took.

    Raises UsageError for a server that cannot, and what `load` and `wait_for_token` raise.
    """
    if kind_of(attached) is None:
        raise UsageError(
            f"{attached.root} is {attached.spec.label} with one model: only llama-swap and "
            "llama.cpp's router load models on demand"
        )
    began_ns = now_ns()
    before = loaded(attached)
    unload_s = unload(attached) if before else None
    stays = before and unload_s is None
    load_s = load(attached, model, deadline_s)
    chosen = replace(attached, model=model)
    token = wait_for_token(chosen, deadline_s)
    note = f"{', '.join(before)} stayed listed as loaded" if stays else None
    return chosen, Swap(
        model=model,
        before=before,
        unload_s=unload_s,
        load_s=load_s,
        first_token_s=token.first_request_ns / 1e9,
        total_s=(now_ns() - began_ns) / 1e9,
        note=note,
    )


def ready_model(attached: Attached, access: Access, deadline_s: float) -> Attached:
    """Load the model where the server does so on demand, and describe what was loaded.

    `extra` gets `model_load_s` (near 0 where it was loaded), `inflight_limit`, and what the engine
    behind tells. Any other server is returned as it is. Raises what `load` raises.
    """
    if kind_of(attached) is None:
        return attached
    load_s = load(attached, attached.model, deadline_s)
    described = behind(attached, access)
    known = {"model_load_s": Fact(round(load_s, 4), "measured"), "loaded": Fact(True, "endpoint")}
    if (limit := inflight_limit(attached)) is not None:
        known["inflight_limit"] = limit
    filled, more = fill_facts(described.facts, known)
    return replace(described, facts=filled, extra={**described.extra, **more})


def behind(attached: Attached, access: Access) -> Attached:
    """Return the server with the facts of the engine behind it; its model is loaded already.

    What the proxy tells itself wins. `extra` gets `upstream_engine` and `upstream_version`. The
    server is returned as it was where nothing can be met behind it.
    """
    if kind_of(attached) == ROUTER:
        return _behind_router(attached)
    try:
        met = attach(f"{attached.root}/upstream/{quote(attached.model)}", access, lane="behind")
    except TargetError:
        return attached
    sources = met.facts.facts_from
    told = {key: getattr(met.facts, key) for key in _BEHIND} | dict(met.extra)
    told |= {"upstream_engine": met.spec.name, "upstream_version": met.facts.engine_version}
    found = {key: Fact(value, sources.get(key, "endpoint")) for key, value in told.items()}
    return _filled(attached, found)


def _behind_router(attached: Attached) -> Attached:
    """Return the router with what its own pages tell of one model, when asked by its name."""
    query = f"?model={quote(attached.model)}&autoload=false"
    answers = {path: attached.http.get(path + query) for path in ("/props", "/slots")}
    answers["/v1/models"] = attached.answers["/v1/models"]
    told = attached.spec.describe(answers, None, ())
    more = {key: fact for key, fact in told.items() if not hasattr(attached.facts, key)}
    return _filled(attached, {key: told[key] for key in _BEHIND if key in told} | more)


def _filled(attached: Attached, found: Mapping[str, Fact]) -> Attached:
    """Return it with what is found added; what it told itself stands."""
    unknown = {
        key: fact
        for key, fact in found.items()
        if fact.value is not None
        and getattr(attached.facts, key, None) is None
        and key not in attached.extra
    }
    filled, more = fill_facts(attached.facts, unknown)
    return replace(attached, facts=filled, extra={**more, **attached.extra})


def inflight_limit(attached: Attached) -> Fact | None:
    """Return how many requests a model may have in flight; more get 429. None: no known limit.

    The proxy's configuration cannot be read over HTTP, so this is its default.
    """
    if kind_of(attached) != LLAMA_SWAP:
        return None
    return Fact(CONCURRENCY_LIMIT, "default")
