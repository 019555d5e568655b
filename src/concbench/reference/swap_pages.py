"""The pages of llama-swap: which models there are, which is loaded, and unloading."""

from __future__ import annotations

from urllib.parse import unquote

from concbench.reference.http import Reply, Request, json_reply
from concbench.reference.personas import refusal
from concbench.reference.state import State

UNLOAD = "/api/models/unload"


def models(state: State, _request: Request, now_ns: int) -> Reply:
    """List the models, with which of them is loaded."""
    states = state.swap.states(now_ns)
    data = [
        {
            "id": name,
            "object": "model",
            "created": state.created_s,
            "owned_by": "llama-swap",
            "status": {"value": "loaded" if states.get(name) == "ready" else "unloaded"},
            "meta": {"llamaswap": {}},
        }
        for name in state.swap.models
    ]
    return json_reply({"object": "list", "data": data})


def running(state: State, _request: Request, now_ns: int) -> Reply:
    """Tell what is loaded or loading."""
    told = {"proxy": "http://localhost:5800", "name": "", "description": ""}
    rows = [
        {
            "model": name,
            "state": value,
            "cmd": f"llama-server -m /models/{name}.gguf --port 5800",
            "ttl": state.options.ttl_ns // 1_000_000_000,
            **told,
        }
        for name, value in state.swap.states(now_ns).items()
    ]
    return json_reply({"running": rows})


def unload(state: State, _request: Request, _now_ns: int) -> Reply:
    """Unload what is loaded."""
    state.swap.unload()
    return Reply(200, b"OK", "text/plain")


def unload_one(state: State, request: Request, _now_ns: int) -> Reply:
    """Unload the model that the path names."""
    model = unquote(request.path.removeprefix(UNLOAD + "/"))
    if model not in state.swap.models:
        return refusal(state.persona, "wrong_model", {"model": model})
    state.swap.unload(model)
    return Reply(200, b"OK", "text/plain")
