"""What a request for tokens asks, and whether it can be had. Pure but for the prefix cache."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import msgspec

from concbench.reference.http import Reply
from concbench.reference.personas import refusal
from concbench.reference.state import State
from concbench.reference.tokens import TEMPLATE_TOK, apply_template, message_text


class StreamOptions(msgspec.Struct):
    """The `stream_options` object."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class Body(msgspec.Struct):
    """The fields of a chat or completions request that the server heeds; others are ignored."""

    model: str | None = None
    messages: list[Any] | None = None
    prompt: Any = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = False
    cache_prompt: bool | None = True
    n: int | None = 1


@dataclass(frozen=True, slots=True)
class Order:
    """An accepted request: how many tokens in and out, and how the answer is to look.

    `offset` is where in the endless text the answer begins: the same prompt gets the same text.
    """

    prompt_tok: int
    cached_tok: int
    output_tok: int
    reason: str
    streamed: bool
    include_usage: bool
    continuous_usage: bool
    offset: int


_decode = msgspec.json.Decoder(Body).decode


def read_order(state: State, data: bytes, *, chat: bool) -> Order | Reply:
    """Return the order, or the persona's refusal."""
    persona = state.persona
    try:
        body = _decode(data)
    except msgspec.MsgspecError as error:
        return refusal(persona, "bad_json", {"detail": str(error)})
    models = state.swap.models
    if persona.checks_model and body.model is not None and body.model not in models:
        facts = {"model": body.model, "known": ", ".join(models)}
        return refusal(persona, "wrong_model", facts)
    if body.n not in (None, 1):
        return refusal(persona, "invalid", {"detail": "only n = 1 is served"})
    text, tokens = _prompt(body, chat=chat)
    if text is None and tokens is None:
        wanted = "messages" if chat else "prompt (a string or token numbers)"
        return refusal(persona, "invalid", {"detail": f"{wanted} is required"})
    prompt_tok = len(tokens) if tokens is not None else len((text or "").split())
    if chat:
        prompt_tok += TEMPLATE_TOK
    sizes = _sizes(state, body, prompt_tok, chat=chat)
    if isinstance(sizes, Reply):
        return sizes
    prompt_tok, output_tok, reason = sizes
    include, continuous = _usage(state, body)
    return Order(
        prompt_tok=prompt_tok,
        cached_tok=_cached(state, body, text, tokens, prompt_tok, chat=chat),
        output_tok=output_tok,
        reason=reason,
        streamed=bool(body.stream),
        include_usage=include,
        continuous_usage=continuous,
        offset=_offset(text, tokens),
    )


def _prompt(body: Body, *, chat: bool) -> tuple[str | None, list[int] | None]:
    if chat:
        return (None if body.messages is None else message_text(body.messages)), None
    prompt = body.prompt
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt, None
    if isinstance(prompt, list) and prompt and all(isinstance(t, int) for t in prompt):
        return None, prompt
    return None, None


def _sizes(
    state: State, body: Body, prompt_tok: int, *, chat: bool
) -> tuple[int, int, str] | Reply:
    """Return prompt tokens, output tokens and the finish reason within the context."""
    persona, options = state.persona, state.options
    context = options.context_tok
    if persona.overlong == "truncate":
        prompt_tok = min(prompt_tok, context - 1)
    asked = body.max_completion_tokens or body.max_tokens
    default = context - prompt_tok if chat or not persona.default_tok else persona.default_tok
    output_tok = asked if asked is not None and asked > 0 else max(1, default)
    over = prompt_tok + output_tok > context
    if prompt_tok >= context or (over and persona.overlong == "reject"):
        facts = {"prompt_tok": prompt_tok, "output_tok": output_tok, "context_tok": context}
        return refusal(persona, "too_long", facts)
    output_tok = min(output_tok, context - prompt_tok)
    heeds = persona.ignores_eos and bool(body.ignore_eos)
    if options.eos_at_tok and not heeds:
        stop_tok = max(options.eos_at_tok, body.min_tokens or 0)
        if stop_tok <= output_tok:
            return prompt_tok, stop_tok, "stop"
    return prompt_tok, output_tok, "length"


def _usage(state: State, body: Body) -> tuple[bool, bool]:
    policy = state.options.usage
    if policy == "none":
        return False, False
    asked = body.stream_options or StreamOptions()
    include = policy in ("final", "continuous") or asked.include_usage
    wants = asked.continuous_usage_stats and state.persona.continuous_usage
    return include, policy == "continuous" or (include and wants)


def _cached(
    state: State,
    body: Body,
    text: str | None,
    tokens: list[int] | None,
    prompt_tok: int,
    *,
    chat: bool,
) -> int:
    if body.cache_prompt is False and state.persona.shape == "llamacpp":
        return 0
    cached_tok = state.options.cached_tok
    if state.options.prefix_cache:
        items: list[Any] = tokens if tokens is not None else []
        if text is not None:
            items = (apply_template(text) if chat else text).split()
        cached_tok = max(cached_tok, state.prefixes.look_up(items))
    return min(cached_tok, prompt_tok)


def _offset(text: str | None, tokens: list[int] | None) -> int:
    seed = text.encode("utf-8", "replace") if text is not None else repr(tokens).encode()
    return zlib.crc32(seed) & 255
