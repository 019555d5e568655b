"""The last values for a display, worked out by the observer so that the tool need not parse."""

from __future__ import annotations

from collections import deque
from typing import Final

from concbench.engines.spec import EngineSpec
from concbench.observe.page import PageReader
from concbench.observe.slots import read_slots
from concbench.observe.spool import Kind, Writer

RATE_OVER_NS: Final = 2_000_000_000
_SHOWN = ("generated_tok", "running", "waiting")
_UNKNOWN: Final = float("nan")


class Live:
    """Keeps the slot's values up to date. What a display shows may be wrong at a restart."""

    def __init__(self, spec: EngineSpec, writer: Writer) -> None:
        self._reader = PageReader(spec, only=_SHOWN)
        self._writer = writer
        self._ended_tok: float | None = None
        self._history: deque[tuple[int, float]] = deque(maxlen=64)

    def on_page(self, kind: Kind, at_ns: int, body: bytes) -> None:
        """Take a page that came."""
        if kind == "metrics":
            found = self._reader.read(body).scalars
            generated = found.get("generated_tok")
            self._ended_tok = found.get("generated_tok_at_end")
            known = {name: found[name] for name in ("running", "waiting") if name in found}
            self._writer.tell(stamp_ns=at_ns, **known)
            if generated is not None:
                self._generated(at_ns, generated)
        elif kind == "slots" and (running := read_slots(body)) is not None:
            self._writer.tell(stamp_ns=at_ns, running=float(len(running)))
            self._generated(at_ns, (self._ended_tok or 0.0) + sum(running.values()))

    def _generated(self, at_ns: int, generated_tok: float) -> None:
        history = self._history
        if history and generated_tok < history[-1][1]:
            history.clear()
        history.append((at_ns, generated_tok))
        while len(history) > 2 and at_ns - history[1][0] >= RATE_OVER_NS:
            history.popleft()
        first_ns, first = history[0]
        rate = _UNKNOWN if at_ns <= first_ns else (generated_tok - first) * 1e9 / (at_ns - first_ns)
        self._writer.tell(generated_tok=generated_tok, generated_tok_per_s=rate)
