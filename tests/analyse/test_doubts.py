from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.doubts import FATAL_ABOVE, SEVERITY
from concbench.analyse.doubts_rounds import steadiness, two_groups
from concbench.analyse.evidence import gather
from concbench.analyse.severity import doubt
from concbench.domain import Doubt, TargetFacts
from tests.analyse.simulate import MS, Reply, S, as_round, steady_stream

FACTS: dict[str, Any] = {"lane": "lane", "engine": "vllm", "base_url": "http://127.0.0.1:1"}


def good(**fields) -> Reply:
    return steady_stream(100 * MS, 20 * MS, 200, **fields)


def raised(*replies: Reply, rounds: int = 4, facts=None, **options) -> dict[str, Doubt]:
    fields = options.pop("fields", {})
    made = [as_round(list(replies), index=k, **fields) for k in range(rounds)]
    target = None if facts is None else TargetFacts(**FACTS, **facts)
    result, doubts = cell_result(made, target, **options)
    assert all(d.cell == result.cell and d.message and d.evidence for d in doubts)
    assert all(d.severity in (SEVERITY[d.code], "fatal") for d in doubts)
    ranks = [["fatal", "warning", "note"].index(d.severity) for d in doubts]
    assert ranks == sorted(ranks)
    return {d.code: d for d in doubts}


def failed(error: str, **extra) -> Reply:
    return Reply(outcome="failed", end=S, extra={"error": error, **extra})


def test_a_good_cell_raises_nothing():
    assert raised(good(), good()) == {}


def test_table_holds_each_code_once():
    assert len(SEVERITY) == 51
    assert set(FATAL_ABOVE) <= set(SEVERITY)
    with pytest.raises(KeyError):
        doubt("no_such_code", None, "", {})


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("http_503", "requests_failed"),
        ("error_in_stream", "errors_in_stream"),
        ("truncated", "truncated_streams"),
        ("empty_response", "empty_responses"),
    ],
)
def test_one_in_a_hundred_is_a_warning_more_is_fatal(error, code):
    some = raised(*[good() for _ in range(99)], failed(error))
    assert some[code].severity == "warning"
    more = raised(*[good() for _ in range(98)], failed(error), failed(error))
    assert more[code].severity == "fatal"
    assert "requests_failed" in some


def test_cuts_at_one_time_point_to_a_proxy():
    cut = [good(outcome="failed", end=300 * S + k, extra={"error": "truncated"}) for k in range(3)]
    assert "300 s" in raised(*cut)["truncated_streams"].message


def test_cuts_by_the_engines_own_end_are_not_laid_to_a_proxy():
    cut = [good(outcome="failed", end=3 * S, extra={"error": "truncated"}) for k in range(3)]
    ended = {"outcome": "crashed", "outcome_detail": "it was killed"}
    told = raised(*cut, fields=ended)["truncated_streams"].message
    assert "The engine's end cut them" in told
    assert "proxy's time-out." not in told


def test_answer_without_tokens_is_empty_even_if_ok():
    assert raised(good(), Reply(end=S))["empty_responses"].severity == "fatal"


def test_429_caps_the_concurrency():
    found = raised(good(), failed("http_429", http_status=429))["concurrency_capped"]
    assert (found.evidence["refused"], found.evidence["let_in"]) == (4, 1)
    assert "at most 1 were let in at once (seen)" in found.message
    replies = (good(), good(), failed("http_429", http_status=429))
    known = raised(*replies, inflight_limit=2)["concurrency_capped"]
    assert "at most 2 were let in at once (the proxy's default)" in known.message
    lower = raised(*replies, inflight_limit=10)["concurrency_capped"]
    assert "(seen; the proxy's default is 10)" in lower.message
    assert lower.message.endswith("or measure up to 2.")
    assert "concurrency_capped" not in raised(good(), good(), inflight_limit=1)


@pytest.mark.parametrize(
    "detail",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 4122",
        "the request exceeds the available context size, try increasing it",
        "Input is too long",
    ],
)
def test_context_rejected(detail):
    found = raised(failed("http_400", http_status=400, error_detail=detail))
    assert found["context_rejected"].evidence["detail"] == detail
    other = raised(failed("http_400", http_status=400, error_detail="bad temperature"))
    assert "context_rejected" not in other


def test_stall_in_the_middle_of_a_stream():
    times = [*range(0, 4 * S, 20 * MS), *range(16 * S, 18 * S, 20 * MS)]
    found = raised(Reply(times=times), Reply(times=times))
    assert found["stalled"].severity == "fatal"
    assert found["stalled"].evidence["silent_s"] == pytest.approx(12.02, abs=0.05)
    busy = steady_stream(0, 50 * MS, 400)
    assert "stalled" not in raised(Reply(times=times), busy)


def test_stall_until_a_time_out_that_is_sooner():
    cut = steady_stream(
        100 * MS, 20 * MS, 50, outcome="failed", end=6 * S, extra={"error": "timeout"}
    )
    assert raised(cut)["stalled"].evidence["silent_s"] == pytest.approx(4.92)
    slow = steady_stream(
        100 * MS, 500 * MS, 12, outcome="failed", end=6 * S, extra={"error": "timeout"}
    )
    assert "stalled" not in raised(slow)


def test_mute_server_is_stalled_and_a_slow_end_is_not():
    assert "stalled" in raised(failed("timeout"))
    assert "stalled" not in raised(failed("http_500"))
    assert "stalled" not in raised(good(end=40 * S))


def test_prompts():
    same = good(extra={"prompt_sha256": "same"})
    assert raised(same, same)["prompts_not_distinct"].evidence["repeated"] == 7
    longer = good(extra={"prompt_tok": 4106, "asked_prompt_tok": 4000})
    assert "2.6 % longer" in raised(longer)["prompt_length_off"].message
    assert "truncated_prompt" not in raised(longer)
    cut = good(extra={"prompt_tok": 2048, "asked_prompt_tok": 4000})
    assert {"truncated_prompt", "prompt_length_off"} <= raised(cut).keys()
    close = good(extra={"prompt_tok": 4060, "asked_prompt_tok": 4000})
    assert raised(close) == {}


@pytest.mark.parametrize(("cached", "hit"), [(16, False), (48, False), (58, True)])
def test_cache_hits_count_beyond_the_template(cached, hit):
    extra = {"prompt_tok": 1048, "asked_prompt_tok": 1048, "cached_tok": cached}
    assert ("prompt_cache_hit" in raised(good(extra=extra), template_tok=48)) is hit


def test_answers_of_other_length():
    short = good(extra={"asked_output_tok": 266, "finish_reason": "stop"})
    assert raised(short)["output_short"].evidence["finish"] == {"stop": 4}
    assert "output_over_cap" in raised(good(extra={"asked_output_tok": 128}))
    assert raised(good(extra={"asked_output_tok": 203})) == {}


@pytest.mark.parametrize("source", ["chunks", "tokenizer"])
def test_estimated_tokens(source):
    assert source in raised(good(extra={"token_source": source}))["token_count_estimated"].message


@pytest.mark.parametrize(
    "extra",
    [
        {"reasoning_tok": 300},
        {"cached_tok": 60, "prompt_tok": 50},
        {"output_tok": 1},
        {"notes": ("usage_inconsistent",)},
    ],
)
def test_counts_that_contradict_each_other(extra):
    assert "usage_inconsistent" in raised(good(extra=extra))


def test_notes_of_the_wire():
    assert "compressed_response" in raised(good(extra={"notes": ("compressed_response",)}))
    assert "buffered_stream" in raised(good(extra={"notes": ("not_streamed",)}))
    odd = raised(good(extra={"notes": ("unparsed_events",)}))["unparsed_events"]
    assert odd.evidence["requests"] == odd.evidence["sent"] == 4


def test_oversubscription_by_slots_and_by_pool():
    pair = (good(), good())
    assert "2 is more" in raised(*pair, facts={"slots": 1})["oversubscribed"].message
    assert "oversubscribed" in raised(*pair, facts={"kv_capacity_tok": 499})
    assert "oversubscribed" not in raised(*pair, facts={"slots": 2, "kv_capacity_tok": 500})


@pytest.mark.parametrize(
    ("rounds", "code"), [(1, "single_round"), (2, "few_rounds"), (3, "few_rounds"), (4, None)]
)
def test_number_of_rounds(rounds, code):
    found = set(raised(good(), rounds=rounds))
    assert found == ({code} if code else set())


def test_few_rounds_say_what_they_give():
    two, three = (raised(good(), rounds=rounds)["few_rounds"].message for rounds in (2, 3))
    assert "no interval can be given" in two
    assert "the interval rests on few" in three


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("answers were not streamed, so no token has a time of its own", "Leave out --no-stream"),
        ("1 of 2 requests failed, so N never decoded together", "See why requests failed"),
        ("the queue grew by 1 requests/s (…): the rate is above capacity", "a lower rate"),
        ("at most 2 of 4 were generating at once: the server queued the others", "as a queue"),
        ("N = 4 needs 9 tokens of KV cache and the engine has 5", "as a queue"),
        ("the loop held less than one request time after its ramp", "Run longer"),
    ],
)
def test_what_would_give_a_window_depends_on_why_there_is_none(reason, said):
    result = cell_result([as_round([good()])])[0]
    result.steady.found, result.steady.reason = False, reason
    told = next(steadiness(gather([as_round([good()])]), result))
    assert said in told.message
    assert "output" not in told.message


def test_without_streaming_nobody_is_told_to_ask_for_longer_answers():
    told = raised(good(), good(), fields={"stream": False})["no_steady_state"].message
    assert told.endswith("Leave out --no-stream to have one.")


def test_nobody_is_said_to_have_wanted_a_width():
    for rounds in (1, 3):
        told = raised(good(), rounds=rounds, target_half_width=1e-9, ended_by="rounds_max")
        assert "wanted" not in told["wide_interval"].message


def test_wide_interval_names_what_ended_the_cell():
    gaps = (19, 20, 21, 22)
    made = [as_round([steady_stream(0, gap * MS, 200)], index=k) for k, gap in enumerate(gaps)]
    for ended_by, wide in (("rounds_max", True), ("interval", False), (None, True)):
        doubts = cell_result(made, target_half_width=0.01, ended_by=ended_by)[1]
        named = [d for d in doubts if d.code == "wide_interval"]
        assert bool(named) is wide
        if ended_by and wide:
            assert ended_by in named[0].message
    single = cell_result(made[:1], target_half_width=0.01, ended_by="rounds_max")[1]
    assert "wide_interval" in {d.code for d in single}
    assert "wide_interval" not in {d.code for d in cell_result(made)[1]}


def test_no_steady_state_gives_its_reason():
    short = steady_stream(0, 20 * MS, 30)
    assert "decode steps" in raised(short)["no_steady_state"].message


def test_cold_first_request_by_facts_and_by_rounds():
    assert "cold_first_request" in raised(good(), facts={"first_request_s": 18.9})
    assert "cold_first_request" not in raised(good(), facts={"first_request_s": 4.5})
    made = [as_round([steady_stream(wait * MS, 20 * MS, 200)]) for wait in (900, 100, 110, 90)]
    assert "cold_first_request" in {d.code for d in cell_result(made)[1]}


def test_interrupted_is_a_note():
    assert raised(good(), fields={"interrupted": True})["interrupted"].severity == "note"


def test_rate_that_was_not_kept():
    """A12: 200 asked, 183.52 sent."""

    def loop(rate: float):
        replies = [
            steady_stream(
                int(k / rate * S) + 50 * MS,
                MS,
                20,
                sent=int(k / rate * S),
                due=int(k / 200 * S),
                worker=k + 1,
            )
            for k in range(400)
        ]
        made = as_round(replies, arrival="constant", rate_rps=200, concurrency=0)
        return {d.code: d for d in cell_result([made])[1]}

    assert loop(183.52)["rate_not_kept"].evidence["kept_pct"] == pytest.approx(91.8, abs=0.1)
    assert "rate_not_kept" not in loop(199)


def test_two_groups():
    assert two_groups([63, 94, 63.1, 94.2]) == ([63, 63.1], [94, 94.2])
    assert two_groups([63, 63, 63, 94]) is None
    assert two_groups([63, 94]) is None
    assert two_groups([100, 100.1, 103, 103.1]) is None


def test_two_groups_seldom_err():
    rng = np.random.default_rng(7)
    for spread, most in ((0.03, 2), (0.05, 40), (0.10, 130)):
        draws = rng.normal(1, spread, size=(2000, 4))
        assert sum(two_groups(values.tolist()) is not None for values in draws) <= most
