"""How each engine behaves where engines differ: headers, openers, refusals. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from concbench.reference.http import Reply

ErrorKind = Literal[
    "bad_json", "wrong_model", "too_long", "unauthorized", "not_found", "loading", "busy", "invalid"
]

STATUS: Mapping[str, int] = {
    "bad_json": 400,
    "wrong_model": 404,
    "too_long": 400,
    "unauthorized": 401,
    "not_found": 404,
    "loading": 503,
    "busy": 429,
    "invalid": 400,
}


@dataclass(frozen=True, slots=True)
class Persona:
    """One engine's manners.

    `early_head`: the response head leaves when the request is taken, not with the first token.
    `opener_with`: when the role-only event leaves. `overlong`: what happens to prompt + output
    beyond the context: `reject`, `clamp` the output, or `truncate` the prompt without a word.
    `default_tok` is what a completion without max_tokens gets, 0 for all that the context holds.
    """

    name: str
    shape: str
    version: str
    headers: Mapping[str, str]
    error: Callable[[ErrorKind, Mapping[str, Any]], Any]
    early_head: bool = True
    opener_with: Literal["head", "token"] = "token"
    ignores_eos: bool = False
    continuous_usage: bool = False
    checks_model: bool = False
    overlong: Literal["reject", "clamp", "truncate"] = "reject"
    default_tok: int = 0
    max_inflight: int = 0
    stream_headers: Mapping[str, str] = field(default_factory=dict)


def refusal(persona: Persona, kind: ErrorKind, facts: Mapping[str, Any]) -> Reply:
    """Return the persona's answer to a request that it will not serve.

    `facts` may hold `model`, `known`, `prompt_tok`, `output_tok`, `context_tok`, `path`, `detail`.
    """
    headers = {"Retry-After": "1"} if kind == "busy" else {}
    body = persona.error(kind, facts)
    return Reply(STATUS[kind], msgspec.json.encode(body), headers=headers)


def _vllm_message(kind: ErrorKind, facts: Mapping[str, Any]) -> tuple[str, str, str | None]:
    if kind == "wrong_model":
        text = f"The model `{facts['model']}` does not exist. Valid aliases: {facts['known']}."
        return text, "NotFoundError", "model"
    if kind == "too_long":
        prompt, output, context = facts["prompt_tok"], facts["output_tok"], facts["context_tok"]
        limit = f"This model's maximum context length is {context} tokens. However, "
        if prompt >= context:
            text = (
                f"{limit}your prompt contains at least {prompt} input tokens, which exceeds this "
                "limit even without any output tokens. Please reduce the length of the input "
                f"prompt. (parameter=input_tokens, value={prompt})"
            )
            return text, "BadRequestError", "input_tokens"
        text = (
            f"{limit}you requested {output} output tokens and your prompt contains at least "
            f"{prompt} input tokens, for a total of at least {prompt + output} tokens. Please "
            "reduce the length of the input prompt or the number of requested output tokens."
        )
        return text, "BadRequestError", "input_tokens"
    if kind == "unauthorized":
        return "Unauthorized", "Unauthorized", None
    if kind == "bad_json":
        text = f"1 validation error:\n  {{'type': 'json_invalid', 'msg': '{facts['detail']}'}}"
        return text, "Bad Request", "body"
    if kind == "not_found":
        return "Not Found", "Not Found", None
    return _plain_message(kind, facts), "BadRequestError", None


def _plain_message(kind: ErrorKind, facts: Mapping[str, Any]) -> str:
    texts = {
        "bad_json": "the body is no JSON: {detail}",
        "wrong_model": "The model `{model}` does not exist or you do not have access to it.",
        "too_long": "This model's maximum context length is {context_tok} tokens. However, you "
        "requested {prompt_tok} tokens in the messages and {output_tok} in the completion.",
        "unauthorized": "Incorrect API key provided.",
        "not_found": "Invalid URL ({path})",
        "loading": "Loading model",
        "busy": "Too many requests",
        "invalid": "{detail}",
    }
    return texts[kind].format(**facts) if facts else texts[kind]


def _vllm_error(kind: ErrorKind, facts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if kind == "unauthorized":
        return {"error": "Unauthorized"}
    if kind == "not_found":
        return {"detail": "Not Found"}
    text, label, param = _vllm_message(kind, facts)
    return {"error": {"message": text, "type": label, "param": param, "code": STATUS[kind]}}


def _sglang_error(kind: ErrorKind, facts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if kind == "not_found":
        return {"detail": "Not Found"}
    if kind == "unauthorized":
        return {"error": "Unauthorized"}
    label = "BadRequestError" if STATUS[kind] == 400 else "ServiceUnavailable"
    text = _plain_message(kind, facts)
    if kind == "too_long":
        prompt, output, context = facts["prompt_tok"], facts["output_tok"], facts["context_tok"]
        text = (
            f"The input ({prompt} tokens) is longer than the model's context length "
            f"({context} tokens)."
            if prompt >= context
            else "Requested token count exceeds the model's maximum context length of "
            f"{context} tokens. You requested a total of {prompt + output} tokens: {prompt} "
            f"tokens from the input messages and {output} tokens for the completion."
        )
    return {
        "object": "error",
        "message": text,
        "type": label,
        "param": None,
        "code": STATUS[kind],
    }


def _llamacpp_error(kind: ErrorKind, facts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    text, label, extra = _plain_message(kind, facts), "invalid_request_error", {}
    if kind == "too_long":
        prompt, context = facts["prompt_tok"], facts["context_tok"]
        text = (
            f"request ({prompt} tokens) exceeds the available context size ({context} tokens), "
            "try increasing it"
        )
        label, extra = "exceed_context_size_error", {"n_prompt_tokens": prompt, "n_ctx": context}
    elif kind == "loading":
        label = "unavailable_error"
    elif kind == "unauthorized":
        text, label = "Invalid API Key", "authentication_error"
    elif kind == "not_found":
        text, label = "File Not Found", "not_found_error"
    return {"error": {"code": STATUS[kind], "message": text, "type": label, **extra}}


def _llama_swap_error(kind: ErrorKind, facts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if kind == "busy":
        error = {
            "message": "Too many requests",
            "type": "rate_limit_error",
            "code": "concurrency_limit",
        }
        return {"src": "llama-swap", "error": error}
    if kind == "wrong_model":
        error = {"message": f"could not find suitable handler for {facts['model']}"}
        return {"src": "llama-swap", "error": error}
    return _llamacpp_error(kind, facts)


def _openai_error(kind: ErrorKind, facts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    codes = {
        "wrong_model": "model_not_found",
        "too_long": "context_length_exceeded",
        "unauthorized": "invalid_api_key",
        "busy": "rate_limit_exceeded",
    }
    return {
        "error": {
            "message": _plain_message(kind, facts),
            "type": "invalid_request_error",
            "param": None,
            "code": codes.get(kind),
        }
    }


def _ollama_error(kind: ErrorKind, facts: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if kind == "wrong_model":
        text = f'model "{facts["model"]}" not found, try pulling it first'
        return {"error": {"message": text, "type": "not_found_error", "param": None, "code": None}}
    return {
        "error": {
            "message": _plain_message(kind, facts),
            "type": "api_error",
            "param": None,
            "code": None,
        }
    }


_LLAMACPP_HEADERS = {"Server": "llama.cpp", "Access-Control-Allow-Origin": ""}

PERSONAS: Mapping[str, Persona] = {
    "vllm": Persona(
        name="vllm",
        shape="vllm",
        version="0.32.0",
        headers={"server": "uvicorn"},
        error=_vllm_error,
        ignores_eos=True,
        continuous_usage=True,
        checks_model=True,
        default_tok=16,
    ),
    "sglang": Persona(
        name="sglang",
        shape="sglang",
        version="0.5.23",
        headers={"server": "uvicorn"},
        error=_sglang_error,
        ignores_eos=True,
        continuous_usage=True,
        default_tok=16,
    ),
    "llamacpp": Persona(
        name="llamacpp",
        shape="llamacpp",
        version="b0-reference",
        headers=_LLAMACPP_HEADERS,
        error=_llamacpp_error,
        early_head=False,
        ignores_eos=True,
        overlong="clamp",
        stream_headers={"X-Accel-Buffering": "no"},
    ),
    "llama-swap": Persona(
        name="llama-swap",
        shape="llamacpp",
        version="v240",
        headers=_LLAMACPP_HEADERS,
        error=_llama_swap_error,
        early_head=False,
        ignores_eos=True,
        checks_model=True,
        overlong="clamp",
        max_inflight=10,
        stream_headers={"X-Accel-Buffering": "no"},
    ),
    "ollama": Persona(
        name="ollama",
        shape="ollama",
        version="0.24.0",
        headers={},
        error=_ollama_error,
        early_head=False,
        checks_model=True,
        overlong="truncate",
    ),
    "openai": Persona(
        name="openai",
        shape="openai",
        version="",
        headers={},
        error=_openai_error,
        opener_with="head",
        checks_model=True,
        default_tok=16,
    ),
}
