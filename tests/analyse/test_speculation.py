"""Speculation's verdicts: one family over levels and contents, and the sentence they come to."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from concbench.analyse.speculation import Speculation, SpeculationRow, Word, summed_up
from concbench.domain import Estimate
from concbench.report.speculation import speculation_lines, speculation_markdown


def row(
    content: str, n: int, verdict: Word, accepted_len: float | None = 2.0, **changes: Any
) -> SpeculationRow:
    figure = Estimate(point=100.0, low=99.0, high=101.0, n=5, method="")
    fields: dict[str, Any] = {
        "content": content,
        "concurrency": n,
        "metric": "steady_output_tok_per_s",
        "off": figure,
        "on": figure,
        "ratio": figure,
        "verdict": verdict,
        "why": None,
        "accepted_len": accepted_len,
        "accepted_rate": None if accepted_len is None else 0.5,
        "tokens_per_step": accepted_len,
    }
    return SpeculationRow(**{**fields, **changes})


def of(**words: str) -> Speculation:
    """Levels 1, 2, 4, … of each content by the first letters of their verdicts."""
    names: dict[str, Word] = {"p": "pays", "c": "costs", "e": "equal", "u": "undecided"}
    rows = [
        row(content, 2**place, names[letter])
        for content, letters in words.items()
        for place, letter in enumerate(letters)
    ]
    return summed_up(rows, "a~off", "a~spec")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            {"code": "pppc", "prose": "ccec"},
            "speculation pays up to N = 4 for code, never for prose",
        ),
        ({"prose": "cc"}, "speculation never pays for prose"),
        (
            {"code": "pp", "json": "pp"},
            "speculation pays at every N measured (1, 2) for code and json",
        ),
        (
            {"code": "ppu", "json": "uc"},
            "speculation pays up to N = 2 for code (open at N = 4), "
            "is not shown to pay for json (open at N = 1)",
        ),
        ({"code": "epc"}, "speculation pays at N = 2 alone for code"),
        ({}, "speculation: no level was measured on both sides"),
    ],
)  # fmt: skip
def test_the_answer_is_one_sentence(words: dict[str, str], sentence: str) -> None:
    assert of(**words).sentence == sentence


def test_where_it_stops_paying_is_bracketed_by_what_was_shown() -> None:
    (code,) = of(code="ppuc").contents
    assert (code.pays_up_to, code.stops_in, code.undecided) == (2, (2, 8), [4])
    (prose,) = of(prose="ppe").contents
    assert prose.stops_in is None
    (odd,) = of(json="cp").contents
    assert (odd.pays_up_to, odd.stops_in) == (None, None)


def test_acceptance_that_changes_with_n_is_named() -> None:
    same = summed_up([row("code", 1, "pays", 2.0), row("code", 4, "costs", 2.05)], "off", "on")
    other = summed_up([row("code", 1, "pays", 2.9), row("code", 4, "costs", 2.1)], "off", "on")
    assert not same.contents[0].acceptance_varies
    assert other.contents[0].acceptance_varies
    assert other.contents[0].accepted_len == (2.1, 2.9)
    text = "\n".join(speculation_lines(_payload(other)))
    assert "acceptance differs over N by more than 5 % for code" in text
    assert "code 2.10 to 2.90" in text


def test_without_counters_that_is_said() -> None:
    told = summed_up([row("code", 1, "pays", None)], "off", "on")
    assert told.acceptance == "unknown"
    assert "the server tells no acceptance" in speculation_markdown(_payload(told))
    assert "nothing was measured on both sides" in speculation_markdown(None)


def _payload(told: Speculation) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(told)
    return found
