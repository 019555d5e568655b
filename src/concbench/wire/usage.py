"""How many tokens an answer had, by the server's own counts, and how its events share them."""

from __future__ import annotations

from array import array
from typing import Any

from concbench.domain import TokenSource
from concbench.wire.chunks import count_tok

_FAR_BELOW_RATIO = 1.1
_FAR_BELOW_TOK = 2


class UsageLedger:
    """Collects the `usage` and `timings` objects of one answer.

    Usage may come once or with every chunk; it is cumulative, so the last value counts. Each
    reading leaves a mark (token events so far, tokens so far). `inconsistent` tells that the
    counts contradict each other.
    """

    __slots__ = (
        "_by_choice",
        "_last_tok",
        "_mark_events",
        "_mark_tok",
        "_rising",
        "_total_tok",
        "cache_n",
        "cached_tok",
        "inconsistent",
        "predicted_tok",
        "prompt_n",
        "prompt_tok",
        "reasoning_tok",
    )

    def __init__(self) -> None:
        self.prompt_tok: int | None = None
        self.cached_tok: int | None = None
        self.reasoning_tok: int | None = None
        self.prompt_n: int | None = None
        self.cache_n: int | None = None
        self.predicted_tok: int | None = None
        self.inconsistent = False
        self._mark_events = array("q")
        self._mark_tok = array("q")
        self._by_choice: dict[int, int] = {}
        self._last_tok: int | None = None
        self._total_tok: int | None = None
        self._rising = True

    def take_usage(self, usage: object, events: int, choice: int | None) -> None:
        """Take a usage object seen after `events` token events, in a chunk of `choice` if any."""
        if not isinstance(usage, dict):
            return
        prompt = count_tok(usage.get("prompt_tokens"))
        output = count_tok(usage.get("completion_tokens"))
        if prompt is not None:
            self.prompt_tok = prompt
        cached = _detail(usage, "prompt_tokens_details", "cached_tokens")
        if cached is not None:
            self.cached_tok = cached
        reasoning = _detail(usage, "completion_tokens_details", "reasoning_tokens")
        if reasoning is not None:
            self.reasoning_tok = reasoning
        if output is None:
            return
        total = count_tok(usage.get("total_tokens"))
        if total is not None and prompt is not None and total != prompt + output:
            self.inconsistent = True
        self._take_output(output, events, choice)

    def _take_output(self, output: int, events: int, choice: int | None) -> None:
        last, by_choice = self._last_tok or 0, self._by_choice
        if choice is not None:
            before = by_choice.get(choice, 0)
        else:
            before = last if len(by_choice) < 2 else 0
        if output < before:
            self.inconsistent = True
            self._rising = False
        if output == 0 and last:
            return
        if choice is None:
            self._total_tok = output
        else:
            by_choice[choice] = output
            if len(by_choice) > 1 and output <= last:
                self._rising = False
        self._last_tok = output
        self._mark_events.append(events)
        self._mark_tok.append(output)

    def take_timings(self, timings: object) -> None:
        """Take llama.cpp's timings; `prompt_n` counts uncached prompt tokens only."""
        if not isinstance(timings, dict):
            return
        predicted = count_tok(timings.get("predicted_n"))
        if predicted is not None:
            self.predicted_tok = predicted
        self.prompt_n = count_tok(timings.get("prompt_n"))
        self.cache_n = count_tok(timings.get("cache_n"))

    def settle(self, events: int) -> tuple[int | None, TokenSource | None, list[float]]:
        """Return output tokens, where the count is from, and the tokens of each token event.

        The shares add up to the output tokens. Without any count each event is one token.
        """
        self._fill_prompt()
        total = self._output_tok()
        if total is not None:
            self._check(total, events)
        if total:
            if self._is_continuous(events):
                return total, "continuous_usage", self._between_marks(events)
            return total, "usage", _even(total, events)
        if self.predicted_tok:
            return self.predicted_tok, "timings", _even(self.predicted_tok, events)
        if events:
            return events, "chunks", [1.0] * events
        if total == 0:
            return 0, "usage", []
        return (None, None, []) if self.predicted_tok is None else (0, "timings", [])

    def _fill_prompt(self) -> None:
        if self.prompt_tok is None and self.prompt_n is not None:
            self.prompt_tok = self.prompt_n + (self.cache_n or 0)
        if self.cached_tok is None:
            self.cached_tok = self.cache_n

    def _output_tok(self) -> int | None:
        """Return the last count. With several choices: the whole's, else the sum of each last.

        Servers count each choice on its own in a chunk of that choice, and all of them at the end.
        """
        if len(self._by_choice) < 2:
            return self._last_tok
        if self._total_tok:
            return self._total_tok
        return self._last_tok if self._rising else sum(self._by_choice.values())

    def _check(self, total: int, events: int) -> None:
        contradictions = (
            total == 0 and events > 0,
            events > total * _FAR_BELOW_RATIO + _FAR_BELOW_TOK,
            self.reasoning_tok is not None and self.reasoning_tok > total,
            None not in (self.cached_tok, self.prompt_tok)
            and (self.cached_tok or 0) > (self.prompt_tok or 0),
        )
        if any(contradictions):
            self.inconsistent = True

    def _is_continuous(self, events: int) -> bool:
        """Whether counts came along with the tokens, so that differences say something."""
        if not self._rising or len(self._by_choice) > 1:
            return False
        if events <= 1:
            return sum(tok > 0 for tok in self._mark_tok) > 1
        return any(
            tok and seen < events
            for seen, tok in zip(self._mark_events, self._mark_tok, strict=True)
        )

    def _between_marks(self, events: int) -> list[float]:
        """Spread what each mark adds over the token events since the mark before.

        Tokens that no event since the last mark carries (special tokens, half a character) belong
        to the next event, at the end to the last one.
        """
        if not events:
            return []
        shares = [0.0] * events
        self._mark_events[-1] = events
        done, counted, waiting = 0, 0, 0
        for seen, tok in zip(self._mark_events, self._mark_tok, strict=True):
            gained = tok - counted
            counted = tok
            if seen == done:
                waiting += gained
                continue
            for i in range(done, seen):
                shares[i] = gained / (seen - done)
            shares[done] += waiting
            done, waiting = seen, 0
        shares[-1] += waiting
        return shares


def _even(total: int, events: int) -> list[float]:
    return [total / events] * events if events else []


def _detail(usage: dict[str, Any], group: str, name: str) -> int | None:
    details = usage.get(group)
    return count_tok(details.get(name)) if isinstance(details, dict) else None
