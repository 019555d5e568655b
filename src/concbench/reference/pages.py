"""Everything but the tokens: models, health, properties, metrics, tokenizers, by persona."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from concbench.reference import metrics, swap_pages
from concbench.reference.http import Reply, Request, json_reply, query_value
from concbench.reference.personas import refusal
from concbench.reference.state import State
from concbench.reference.tokens import apply_template, message_text

Page = Callable[[State, Request, int], Reply]
"""page(state, request, now_ns)"""

_METRICS: dict[str, Callable[[State, int, int], str]] = {
    "vllm": metrics.vllm_page,
    "sglang": metrics.sglang_page,
    "llamacpp": metrics.llamacpp_page,
    "llama-swap": metrics.llama_swap_page,
}


def find_page(state: State, request: Request) -> Page | None:
    """Return the persona's page for a method and path, or None."""
    name, path = state.persona.name, request.path
    if name == "llama-swap":
        inner = state.swap.inner_path(path)
        if inner != path:
            return PAGES["llamacpp"].get((request.method, inner))
        if request.method == "POST" and path.startswith(swap_pages.UNLOAD + "/"):
            return swap_pages.unload_one
    return PAGES[name].get((request.method, path))


def truth_page(state: State, request: Request, now_ns: int) -> Reply:
    """Answer below `/truth`: the same for every persona."""
    truth, asked = state.truth, (request.method, request.path)
    if asked == ("POST", "/truth/reset"):
        truth.reset()
        truth.generated_tok = -state.running_tok()
        state.first_request_ns = None
        return json_reply({"reset": True})
    if asked == ("GET", "/truth"):
        since = query_value(request.query, "since") or "0"
        number = int(since) if since.isdigit() else 0
        return Reply(200, truth.page(now_ns, number, state.running_tok()))
    if asked == ("GET", "/truth/token_times"):
        wanted = query_value(request.query, "id") or ""
        body = truth.token_times(int(wanted)) if wanted.isdigit() else None
        if body is not None:
            return Reply(200, body)
    return json_reply({"error": "no such truth; token times need --keep-token-times"}, 404)


def _fixed(value: object) -> Page:
    return lambda _state, _request, _now_ns: json_reply(value)


def _text(text: str, content_type: str = "text/plain") -> Page:
    return lambda _state, _request, _now_ns: Reply(200, text.encode(), content_type)


def _metrics(name: str) -> Page:
    def page(state: State, _request: Request, now_ns: int) -> Reply:
        # With two workers behind one port, whoever scrapes gets one of them by chance: in turns.
        worker = state.scrapes % len(state.workers)
        state.scrapes += 1
        text = _METRICS[name](state, worker, now_ns)
        return Reply(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    return page


def _version(state: State, _request: Request, _now_ns: int) -> Reply:
    return json_reply({"version": state.persona.version})


def _models_openai(state: State, _request: Request, _now_ns: int) -> Reply:
    model = {"id": state.model, "object": "model", "created": state.created_s}
    return json_reply({"object": "list", "data": [{**model, "owned_by": state.persona.name}]})


def _models_vllm(state: State, _request: Request, _now_ns: int) -> Reply:
    model = {
        "id": state.model,
        "object": "model",
        "created": state.created_s,
        "owned_by": state.persona.name,
        "root": f"/models/{state.model}",
        "parent": None,
        "max_model_len": state.options.context_tok,
    }
    return json_reply({"object": "list", "data": [model]})


def _models_llamacpp(state: State, _request: Request, _now_ns: int) -> Reply:
    meta = {
        "vocab_type": 2,
        "n_vocab": 49152,
        "n_ctx": state.options.context_tok,
        "n_ctx_train": state.options.context_tok,
        "n_embd": 576,
        "n_params": 134515008,
        "size": 96576768,
        "ftype": "Q4_1",
    }
    name = state.model
    model = {"id": name, "aliases": [name], "tags": [], "object": "model", "meta": meta}
    data = [{**model, "created": state.created_s, "owned_by": "llamacpp"}]
    return json_reply({"models": [{"name": name, "model": name}], "object": "list", "data": data})


def _props(state: State, _request: Request, _now_ns: int) -> Reply:
    name = state.model
    settings = {"n_ctx": state.options.context_tok, "params": {"n_predict": -1}}
    return json_reply(
        {
            "default_generation_settings": settings,
            "total_slots": state.slots(),
            "model_alias": name,
            "model_ftype": "Q4_1",
            "model_path": f"/models/{name}.gguf",
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "chat_template": "reference",
            "build_info": state.persona.version,
            "is_sleeping": False,
        }
    )


def _slots(state: State, _request: Request, _now_ns: int) -> Reply:
    context = state.options.context_tok
    rows: list[dict[str, Any]] = []
    for index, job in enumerate(state.scheduler.running):
        counts = {"n_decoded": job.sent_tok, "n_remain": job.output_tok - job.sent_tok}
        rows.append(
            {
                "id": index,
                "n_ctx": context,
                "speculative": False,
                "is_processing": True,
                "id_task": job.owner.trace.id,
                "n_prompt_tokens": job.prompt_tok,
                "n_prompt_tokens_processed": job.prompt_tok - job.cached_tok,
                "n_prompt_tokens_cache": job.cached_tok,
                "next_token": [{"has_next_token": True, **counts}],
            }
        )
    idle = {"n_ctx": context, "speculative": False, "is_processing": False}
    rows += [{"id": index, **idle} for index in range(len(rows), state.slots())]
    return json_reply(rows)


def _body(request: Request) -> dict[str, Any] | None:
    try:
        body = msgspec.json.decode(request.body)
    except msgspec.DecodeError:
        return None
    return body if isinstance(body, dict) else None


def _tokenize(state: State, request: Request, _now_ns: int) -> Reply:
    """vLLM's and SGLang's form: prompt or messages in, count and tokens out."""
    body = _body(request)
    if body is None:
        return refusal(state.persona, "bad_json", {"detail": "an object is expected"})
    text = body.get("prompt")
    if isinstance(body.get("messages"), list):
        text = apply_template(message_text(body["messages"]))
    if not isinstance(text, str):
        return refusal(state.persona, "invalid", {"detail": "prompt or messages is expected"})
    tokens = state.tokenizer.encode(text)
    context = state.options.context_tok
    return json_reply({"count": len(tokens), "max_model_len": context, "tokens": tokens})


def _detokenize(state: State, request: Request, _now_ns: int) -> Reply:
    text = _decoded(state, request)
    return json_reply({"prompt": text}) if text is not None else _no_tokens(state)


def _tokenize_llamacpp(state: State, request: Request, _now_ns: int) -> Reply:
    body = _body(request)
    if body is None:
        return refusal(state.persona, "bad_json", {"detail": "an object is expected"})
    return json_reply({"tokens": state.tokenizer.encode(str(body.get("content", "")))})


def _detokenize_llamacpp(state: State, request: Request, _now_ns: int) -> Reply:
    text = _decoded(state, request)
    return json_reply({"content": text}) if text is not None else _no_tokens(state)


def _decoded(state: State, request: Request) -> str | None:
    tokens = (_body(request) or {}).get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(t, int) for t in tokens):
        return None
    return state.tokenizer.decode(tokens)


def _no_tokens(state: State) -> Reply:
    return refusal(state.persona, "invalid", {"detail": "tokens, a list of numbers, is expected"})


def _template(state: State, request: Request, _now_ns: int) -> Reply:
    messages = (_body(request) or {}).get("messages")
    if not isinstance(messages, list):
        return refusal(state.persona, "invalid", {"detail": "messages is expected"})
    return json_reply({"prompt": apply_template(message_text(messages))})


def _reset_cache(value: object) -> Page:
    def page(state: State, _request: Request, _now_ns: int) -> Reply:
        if state.scheduler.running:
            return json_reply({"success": False}, 200 if state.persona.name == "vllm" else 400)
        state.prefixes.clear()
        return json_reply(value)

    return page


def _vllm_info(state: State, _request: Request, _now_ns: int) -> Reply:
    slots, context = state.slots(), state.options.context_tok
    config: dict[str, Any] = {"max_num_seqs": slots, "max_model_len": context}
    if state.options.draft_tok:
        drafts = {"method": "ngram", "num_speculative_tokens": state.options.draft_tok}
        synthetic = {"rejection_sample_method": "synthetic"}
        config["speculative_config"] = {
            **drafts,
            **(synthetic if state.options.simulated_acceptance else {}),
        }
    return json_reply({"vllm_config": config})


def _sglang_info(state: State, _request: Request, _now_ns: int) -> Reply:
    pool, slots = state.kv_pool_tok(), state.slots()
    memory = {"weight": 0.25, "kvcache": 2.0, "token_capacity": pool, "graph": 0.0}
    inner = {"effective_max_running_requests_per_dp": slots, "memory_usage": memory}
    return json_reply(
        {
            "model_path": state.model,
            "served_model_name": state.model,
            "context_length": state.options.context_tok,
            "max_running_requests": slots,
            "max_total_num_tokens": pool,
            "disable_radix_cache": not state.options.prefix_cache,
            "quantization": None,
            "kv_cache_dtype": "auto",
            "disable_cuda_graph": False,
            "internal_states": [inner],
            "version": state.persona.version,
        }
    )


def _sglang_model(state: State, _request: Request, _now_ns: int) -> Reply:
    return json_reply({"model_path": state.model, "is_generation": True})


def _sglang_loads(state: State, _request: Request, _now_ns: int) -> Reply:
    used, pool = state.kv_used_tok(), state.kv_pool_tok()
    load = {
        "num_running_reqs": len(state.scheduler.running),
        "num_waiting_reqs": len(state.scheduler.waiting),
        "num_used_tokens": used,
        "max_total_num_tokens": pool,
        "max_running_requests": state.slots(),
        "token_usage": min(1.0, used / pool),
    }
    return json_reply({"loads": [load]})


def _vllm_load(state: State, _request: Request, _now_ns: int) -> Reply:
    return json_reply({"server_load": len(state.scheduler.running) + len(state.scheduler.waiting)})


def _ollama_tags(state: State, _request: Request, _now_ns: int) -> Reply:
    name = state.model
    return json_reply({"models": [{"name": name, "model": name, "size": 96576768}]})


def _ollama_ps(state: State, _request: Request, _now_ns: int) -> Reply:
    model = {
        "name": state.model,
        "model": state.model,
        "size": 96576768,
        "digest": "reference",
        "details": {"format": "gguf", "quantization_level": "Q4_1"},
        "size_vram": 0,
        "context_length": state.options.context_tok,
    }
    return json_reply({"models": [model]})


_LLAMACPP: dict[tuple[str, str], Page] = {
    ("GET", "/health"): _fixed({"status": "ok"}),
    ("GET", "/v1/health"): _fixed({"status": "ok"}),
    ("GET", "/v1/models"): _models_llamacpp,
    ("GET", "/models"): _models_llamacpp,
    ("GET", "/props"): _props,
    ("GET", "/slots"): _slots,
    ("GET", "/metrics"): _metrics("llamacpp"),
    ("POST", "/tokenize"): _tokenize_llamacpp,
    ("POST", "/detokenize"): _detokenize_llamacpp,
    ("POST", "/apply-template"): _template,
}

PAGES: dict[str, dict[tuple[str, str], Page]] = {
    "vllm": {
        ("GET", "/health"): _text(""),
        ("GET", "/version"): _version,
        ("GET", "/v1/models"): _models_vllm,
        ("GET", "/load"): _vllm_load,
        ("GET", "/server_info"): _vllm_info,
        ("GET", "/metrics"): _metrics("vllm"),
        ("POST", "/tokenize"): _tokenize,
        ("POST", "/detokenize"): _detokenize,
        ("POST", "/reset_prefix_cache"): _reset_cache({"success": True}),
    },
    "sglang": {
        ("GET", "/health"): _text(""),
        ("GET", "/ready"): _text(""),
        ("GET", "/v1/models"): _models_vllm,
        ("GET", "/server_info"): _sglang_info,
        ("GET", "/get_server_info"): _sglang_info,
        ("GET", "/model_info"): _sglang_model,
        ("GET", "/get_model_info"): _sglang_model,
        ("GET", "/v1/loads"): _sglang_loads,
        ("GET", "/metrics"): _metrics("sglang"),
        ("POST", "/tokenize"): _tokenize,
        ("POST", "/detokenize"): _detokenize,
        ("GET", "/flush_cache"): _reset_cache("Cache flushed."),
        ("POST", "/flush_cache"): _reset_cache("Cache flushed."),
    },
    "llamacpp": _LLAMACPP,
    "llama-swap": {
        ("GET", "/health"): _text("OK"),
        ("GET", "/v1/models"): swap_pages.models,
        ("GET", "/running"): swap_pages.running,
        ("GET", "/api/version"): _version,
        ("GET", "/metrics"): _metrics("llama-swap"),
        ("GET", "/unload"): swap_pages.unload,
        ("POST", swap_pages.UNLOAD): swap_pages.unload,
    },
    "ollama": {
        ("GET", "/"): _text("Ollama is running"),
        ("GET", "/v1/models"): _models_openai,
        ("GET", "/api/tags"): _ollama_tags,
        ("GET", "/api/ps"): _ollama_ps,
        ("GET", "/api/version"): _version,
    },
    "openai": {("GET", "/v1/models"): _models_openai},
}
