"""One answer as a row of parts: what leaves when. Pure; `server` gives it the times."""

from __future__ import annotations

from collections.abc import Sequence

from concbench.reference.faults import Named, Script
from concbench.reference.http import response_head
from concbench.reference.parts import Part, Scene, frame_part, render_part
from concbench.reference.personas import Persona
from concbench.reference.render import SHAPES, WORDS, Ids, Render, Usage, words


class Answer:
    """Builds the parts of one answer; a script of faults, if any, has the last word.

    `offset` is where in the endless text the answer begins. `plain` tells that tokens between the
    first and the last are simple enough for the fast path.
    """

    __slots__ = (
        "_head",
        "_opener_sent",
        "_persona",
        "include_usage",
        "offset",
        "plain",
        "render",
        "scene",
        "script",
        "streamed",
    )

    def __init__(
        self,
        persona: Persona,
        ids: Ids,
        *,
        streamed: bool,
        include_usage: bool,
        continuous_usage: bool,
        offset: int,
        prompt_tok: int,
        output_tok: int,
        faults: Sequence[Named] = (),
        extra_headers: dict[str, str] | None = None,
    ) -> None:
        self._persona = persona
        self._opener_sent = False
        self.streamed = streamed
        self.include_usage = include_usage
        self.offset = offset
        self.render = Render(SHAPES[persona.shape], ids, continuous_usage=continuous_usage)
        self.scene = Scene(self.render, streamed, prompt_tok, output_tok, self._word)
        self.script = Script(self.scene, list(faults)) if faults else None
        self.plain = streamed and not continuous_usage and self.script is None
        self._head: dict[str, str] | None = {**persona.headers, **(extra_headers or {})}

    def opening(self) -> list[Part]:
        """Return what leaves when the request is taken: nothing, the head, or head and opener."""
        persona = self._persona
        if not self.streamed or not persona.early_head:
            return []
        parts = [self._take_head(None)]
        if persona.opener_with == "head":
            parts += self._take_opener()
        return self._finished(parts)

    def emission(self, start_tok: int, tokens: int, usage: Usage, reason: str | None) -> list[Part]:
        """Return what leaves when tokens fall due; `reason` is set with the last of them."""
        if not self.streamed:
            return self._whole(usage, reason) if reason is not None else []
        parts = [] if self._head is None else [self._take_head(None)]
        parts += self._take_opener()
        own = self.render.shape.finish_own
        parts.append(
            Part(
                "token",
                text=words(self.offset + start_tok, tokens),
                reason=None if own else reason,
                tokens=tokens,
                total_tok=start_tok + tokens,
                last=reason is not None,
            )
        )
        if reason is not None:
            parts += self._closing(usage, reason)
        return self._finished(parts)

    def edges(self) -> tuple[bytes, bytes]:
        """Return what stands round the text of a token on the fast path, framing without size."""
        return self.render.edges(None)

    def _closing(self, usage: Usage, reason: str) -> list[Part]:
        parts = []
        finish = self.render.finish(reason, usage, last=not self.include_usage)
        if finish is not None:
            parts.append(Part("finish", finish))
        if self.include_usage and (self.render.ids.chat or not self._text_usage()):
            parts.append(Part("usage", self.render.usage(usage)))
        return [*parts, Part("done"), Part("end")]

    def _text_usage(self) -> bool:
        return self.render.shape.text_usage_always

    def _whole(self, usage: Usage, reason: str) -> list[Part]:
        body = self.render.whole(words(self.offset, usage.output_tok), reason, usage)
        head = self._take_head(len(body))
        part = Part("body", body, tokens=usage.output_tok, total_tok=usage.output_tok, last=True)
        return self._finished([head, part])

    def _take_head(self, length: int | None) -> Part:
        headers = dict(self._head or {})
        self._head = None
        if length is None:
            headers["Content-Type"] = "text/event-stream; charset=utf-8"
            headers.update(self._persona.stream_headers)
            return Part("head", response_head(200, headers, chunked=True))
        headers["Content-Type"] = "application/json"
        return Part("head", response_head(200, headers, length=length))

    def _take_opener(self) -> list[Part]:
        if self._opener_sent:
            return []
        self._opener_sent = True
        opener = self.render.opener()
        return [] if opener is None else [Part("opener", opener)]

    def _word(self, index: int) -> bytes:
        return WORDS[(self.offset + index) % len(WORDS)]

    def _finished(self, parts: list[Part]) -> list[Part]:
        if self.script is not None:
            return self.script.apply(parts)
        for part in parts:
            render_part(self.scene, part)
            frame_part(self.scene, part)
        return parts
