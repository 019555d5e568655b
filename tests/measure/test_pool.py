"""A closed loop's requests: rendered ahead, in order, and made at need when they run out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from concbench.measure.campaign import Asking, Campaign, Recorder
from concbench.measure.pool import Pool
from concbench.measure.requests import Ask
from concbench.plan.prompts import Prompt, make_prompts


class Words:
    """A tokenizer of one token a piece; counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def count(self, texts: Sequence[str]) -> list[int]:
        self.asked += 1
        return [max(1, len(text.split())) for text in texts]


def pool_of(asking: Asking, tokenizer: Words, workers: int = 4, output_tok: int = 80) -> Pool:
    session: Any = SimpleNamespace(
        ask=Ask(host="h", prefix="/v1", model="m"),
        template_tok=9,
        calibration=None,
        next_prompt=0,
        prefill_ns=0,
    )

    def prompts(n: int, target: int, kind: str, seed: int, *, same: bool = False) -> list[Prompt]:
        made = make_prompts(
            n, target, kind, seed, session.next_prompt, tokenizer, 9, same_prompt=same  # type: ignore[arg-type]
        )  # fmt: skip
        session.next_prompt += n
        return made

    session.prompts = prompts
    recorder = Recorder(session, asking, Campaign(), lambda _: None)
    return Pool(recorder, workers, output_tok, seed=5)


def asked_tok(pool: Pool) -> int:
    request = pool.take()
    body = json.loads(request.payload.partition(b"\r\n\r\n")[2])
    assert body["max_tokens"] == request.asked_output_tok
    return request.asked_output_tok


PROSE = Asking(prompt_tok=60, content="prose", seed=1)


def test_the_first_of_each_worker_is_a_share_and_the_order_is_that_of_issue() -> None:
    pool = pool_of(PROSE, Words())
    pool.prepare(10, 10)
    assert pool.ready == 10
    lengths = [asked_tok(pool) for _ in range(10)]
    assert sorted((length - 1) // 20 for length in lengths[:4]) == [0, 1, 2, 3]
    assert lengths[4:] == [80] * 6
    assert pool.issued == 10
    assert not pool.late


def test_what_runs_out_is_made_without_asking_the_server_and_noted() -> None:
    words = Words()
    pool = pool_of(PROSE, words)
    pool.prepare(6, 10)
    asked = words.asked
    for _ in range(2000):
        pool.take()
    assert words.asked == asked
    assert pool.late == set(range(6, 2000))
    assert len({prompt.sha256 for prompt in pool.prompts}) == 2000
    assert all(prompt.tok is not None and abs(prompt.tok - 60) <= 3 for prompt in pool.prompts)


def test_more_are_made_between_looks_for_a_bounded_time_only() -> None:
    pool = pool_of(PROSE, Words())
    pool.prepare(4, 10)
    for _ in range(4):
        pool.take()
    pool.top_up(50, 10_000_000_000)
    assert pool.ready == 50
    pool.top_up(50, 10_000_000_000)
    assert pool.ready == 50
    pool.top_up(10**9, 1_000_000)
    assert pool.ready < 10**6


def test_without_time_there_is_still_one_for_each_worker() -> None:
    pool = pool_of(PROSE, Words(), workers=200)
    pool.prepare(10_000, 0.0)
    assert 200 <= pool.ready < 400


def test_prompts_of_a_file_go_round_and_the_same_prompt_stays_the_same() -> None:
    file = [
        Prompt(text=t, tok=None, exact=False, sha256=t * 8, index=i) for i, t in enumerate("abc")
    ]
    pool = pool_of(Asking(prompt_tok=60, content="prose", seed=1, file_prompts=file), Words())
    pool.prepare(4, 10)
    for _ in range(9):
        pool.take()
    assert [prompt.text for prompt in pool.prompts] == list("abcabcabc")
    same = pool_of(Asking(prompt_tok=60, content="prose", seed=1, same_prompt=True), Words())
    same.prepare(4, 10)
    for _ in range(9):
        same.take()
    assert len({prompt.sha256 for prompt in same.prompts}) == 1


@pytest.mark.parametrize("prompt_tok", [28, 40])
def test_even_the_shortest_prompts_can_be_made_at_need(prompt_tok: int) -> None:
    pool = pool_of(Asking(prompt_tok=prompt_tok, content="prose", seed=1), Words())
    pool.prepare(4, 10)
    for _ in range(40):
        pool.take()
    assert len({prompt.sha256 for prompt in pool.prompts}) == 40
