"""Known answers of the server's own accounting: what goes wrong, its doubt, and the number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from concbench.analyse.cell import cell_result
from concbench.domain import Round, ServerSample, TargetFacts
from concbench.engines.spec import Trap
from tests.analyse.simulate import (
    MS,
    Engine,
    Reply,
    S,
    as_round,
    burst,
    closed_loop,
    steady_stream,
)

ENGINE = Engine(step_ns=lambda batch: 20 * MS, prefill_ns=20 * MS)
RATE = 4 / 0.020


def row(
    name: str,
    at: int,
    value: float | None,
    labels: str = "",
    source: str = "metrics",
    took: int = 2,
) -> ServerSample:
    return ServerSample(
        sent_ns=at - took * MS // 2,
        received_ns=at + took * MS // 2,
        source=source,
        name=name,
        labels=labels,
        value=value,
    )


def event(label: str, at: int, source: str = "metrics") -> ServerSample:
    return row("event", at, None, label, source)


def watched(
    round_: Round,
    counter: Callable[[int, int], float] = lambda told, at: 1000 + told,
    *more: ServerSample,
    name: str = "generated_tok",
    every: int = 100,
) -> Round:
    """Read a counter of the tokens that had come, before, every 100 ms, and after."""
    times = sorted(round_.events.kernel_ns)
    stops = [-100 * MS, *range(0, round_.end_ns + 2 * every * MS, every * MS)]
    rows = [row(name, at, counter(sum(t <= at for t in times), at)) for at in stops]
    return msgspec.structs.replace(round_, samples=[*rows, *more])


def judged(*rounds: Round, **options: Any):
    result, doubts = cell_result(rounds, **options)
    return result, {doubt.code: doubt for doubt in doubts}


def nothing_of_the_servers(result) -> None:
    assert result.ledger.generated is None
    assert result.agreement_pct is None
    assert result.server.output_tok_per_s is None
    assert result.steady.headline == "client"
    assert result.client.steady_output_tok_per_s.point == pytest.approx(RATE, rel=0.01)


def test_counters_reset_in_the_middle():
    def reset(told: int, at: int) -> float:
        return told if at < 2 * S else told - 500

    round_ = watched(burst(ENGINE, 4, 200), reset, event("reset", 2 * S))
    result, doubts = judged(round_)
    nothing_of_the_servers(result)
    assert doubts["counters_unusable"].severity == "warning"
    assert not {"server_restarted", "foreign_traffic", "client_server_disagree"} & set(doubts)


def test_counters_that_the_headline_needs():
    replies = [
        steady_stream(100 * MS, 20 * MS, 200, extra={"token_source": "chunks"}) for _ in range(4)
    ]
    _, doubts = judged(watched(as_round(replies), lambda t, _: t, event("two_workers", S)))
    assert doubts["counters_unusable"].severity == "fatal"


def test_a_restart_by_its_identity_and_by_what_failed():
    cut = [
        steady_stream(0, 20 * MS, 100, outcome="failed", end=2 * S, extra={"error": "reset"})
        for _ in range(4)
    ]
    for label in ("restarted", "reset"):
        fell = watched(as_round(cut), lambda t, at: t if at < 2 * S else 0, event(label, 2 * S))
        result, doubts = judged(fell)
        assert doubts["server_restarted"].severity == "fatal"
        assert "counters_unusable" not in doubts
        assert (result.ledger.generated, result.server.output_tok_per_s) == (None, None)


def test_a_restart_while_nothing_was_under_way():
    round_ = watched(burst(ENGINE, 4, 200), lambda t, _: t, event("restarted", 6 * S))
    assert judged(round_)[1]["server_restarted"].severity == "fatal"


def test_requests_that_go_on_through_a_new_identity_show_that_only_the_books_began_anew():
    result, doubts = judged(
        watched(burst(ENGINE, 4, 200), lambda t, _: t, event("restarted", 2 * S))
    )
    nothing_of_the_servers(result)
    assert "began anew" in doubts["counters_unusable"].message
    assert "server_restarted" not in doubts


def test_two_workers_answer_in_turn():
    def either(told: int, at: int) -> float:
        return told / 2 + (10_000 if at // (100 * MS) % 2 else 0)

    events = (event("two_workers", S), row("running", S, 2), row("kv_usage", S, 0.2))
    result, doubts = judged(watched(burst(ENGINE, 4, 200), either, *events))
    nothing_of_the_servers(result)
    assert (result.server.running_mean, result.server.kv_usage_max) == (None, None)
    assert "two workers" in doubts["counters_unusable"].message


def test_an_observer_that_died():
    _, doubts = judged(watched(burst(ENGINE, 4, 200), lambda t, _: t, event("observer_lost", S)))
    assert "observer died" in doubts["counters_unusable"].message


def test_foreign_traffic_by_tokens():
    result, doubts = judged(watched(burst(ENGINE, 4, 200), lambda t, at: t + 40 * max(0, at) / S))
    assert result.ledger.foreign == pytest.approx(40 * 4.1, rel=0.1)
    assert doubts["foreign_traffic"].evidence["foreign"] == result.ledger.foreign
    assert (result.agreement_pct, result.steady.headline) == (None, "client")


def test_foreign_traffic_by_requests_that_run():
    """A counter that moves at a request's end does not show who is still being served."""
    beyond = [row("running", at, 5, source="slots") for at in range(S, 3 * S, 100 * MS)]
    round_ = watched(burst(ENGINE, 4, 200), lambda t, _: t, *beyond)
    assert judged(round_)[1]["foreign_traffic"].evidence["requests_beyond"] == 1
    sticky = [row("running", at, 8) for at in (0, 100 * MS)]
    usual = [row("running", at, 4) for at in range(200 * MS, 3 * S, 100 * MS)]
    round_ = watched(burst(ENGINE, 4, 200), lambda t, _: t, *sticky, *usual)
    assert "foreign_traffic" not in judged(round_)[1]


def test_tokens_of_cut_streams_are_not_foreign():
    cut = steady_stream(
        100 * MS, 20 * MS, 50, outcome="failed", extra={"error": "timeout", "asked_output_tok": 200}
    )
    replies = [*(steady_stream(100 * MS, 20 * MS, 200) for _ in range(3)), cut]
    went_on = watched(as_round(replies), lambda t, at: t + (150 if at > 2 * S else 0))
    result, doubts = judged(went_on)
    assert result.ledger.foreign == 150
    assert "foreign_traffic" not in doubts
    noticed = watched(as_round(replies), lambda t, at: t + (30 if at > 2 * S else 0))
    assert "foreign_traffic" not in judged(noticed)[1]


@pytest.mark.parametrize(("hits", "told"), [(4 * 40, False), (4 * 45, True)])
def test_cache_hits_beyond_the_template(hits, told):
    round_ = burst(ENGINE, 4, 200)
    rows = [row("prefix_hits_tok", -100 * MS, 7000), row("prefix_hits_tok", 5 * S, 7000 + hits)]
    result, doubts = judged(watched(round_, lambda t, _: t, *rows), template_tok=40)
    assert result.server.cached_tok == hits
    assert ("prompt_cache_hit" in doubts) is told


def test_cache_hits_are_held_against_what_was_looked_up():
    """A request that was cut, or is somebody else's, is in the counters and in no answer."""
    round_ = burst(ENGINE, 4, 200)
    counted = {"prefix_hits_tok": 5 * 30, "prefix_queries_tok": 5 * 50}
    rows = [
        row(name, at, 7000 + grown)
        for name, value in counted.items()
        for at, grown in ((-100 * MS, 0), (5 * S, value))
    ]
    _, doubts = judged(watched(round_, lambda t, _: t, *rows), template_tok=12)
    evidence = doubts["prompt_cache_hit"].evidence
    assert (evidence["cached_tok"], evidence["prompt_tok"]) == (5 * 18, 5 * 38)
    assert "47.4 %" in doubts["prompt_cache_hit"].message


def test_llamacpps_counters_leave_cached_tokens_out():
    round_ = burst(ENGINE, 4, 200)
    counted = {"cached_tok": 4 * 20, "prompt_computed_tok": 4 * 30}
    rows = [
        row(name, at, grown)
        for name, value in counted.items()
        for at, grown in ((-100 * MS, 0), (5 * S, value))
    ]
    evidence = judged(watched(round_, lambda t, _: t, *rows))[1]["prompt_cache_hit"].evidence
    assert (evidence["cached_tok"], evidence["prompt_tok"]) == (80, 200)


def paused(end: int | None = None) -> Round:
    """Four streams that stand still for 5 s."""
    times = [*range(100 * MS, 2100 * MS, 20 * MS), *range(7100 * MS, 9100 * MS, 20 * MS)]
    if end is None:
        return as_round([Reply(times=times) for _ in range(4)])
    cut = {"outcome": "failed", "extra": {"error": "timeout"}}
    return as_round([Reply(times=times[:100], end=end, **cut) for _ in range(4)])


def test_a_pause_of_five_seconds_is_in_the_number_and_both_sides_agree():
    result, doubts = judged(watched(paused()))
    span = 9.08 - 0.1
    assert result.client.steady_output_tok_per_s.point == pytest.approx(4 * 199 / span, rel=1e-3)
    assert result.client.icl_ms.max == pytest.approx(5020)
    assert result.agreement_pct == pytest.approx(0, abs=0.6)
    assert not {"stalled", "client_server_disagree", "foreign_traffic"} & set(doubts)
    usual = [watched(as_round([steady_stream(100 * MS, 20 * MS, 200) for _ in range(4)]))] * 3
    _, doubts = judged(*usual, watched(paused()), target_half_width=0.01, ended_by="rounds_max")
    assert "wide_interval" in doubts
    _, doubts = judged(watched(paused(7100 * MS)))
    assert doubts["stalled"].severity == "fatal"


def test_a_silence_in_which_the_server_went_on_is_no_stall():
    times = [*range(0, 4 * S, 20 * MS), *range(16 * S, 18 * S, 20 * MS)]
    round_ = as_round([Reply(times=times) for _ in range(2)])
    still = watched(round_)
    assert "stalled" in judged(still)[1]
    went_on = [row("generated_tok", at, at // (40 * MS)) for at in range(0, 19 * S, 200 * MS)]
    assert "stalled" not in judged(msgspec.structs.replace(round_, samples=went_on))[1]


def test_a_reading_that_took_seconds_is_no_edge():
    round_ = watched(burst(ENGINE, 4, 200))
    others = [s for s in round_.samples if not 3000 * MS < s.received_ns < 4500 * MS]
    slow = row("generated_tok", 3750 * MS, 1800, took=1500)
    late = msgspec.structs.replace(round_, samples=[*others, slow])
    assert judged(late)[0].agreement_pct == pytest.approx(0, abs=0.6)


def test_preemptions_and_what_really_ran():
    """K02: 256 sent, 72 run, 184 wait, 480 preemptions."""
    engine = Engine(step_ns=lambda batch: 20 * MS, prefill_ns=1 * MS, slots=9)
    round_ = burst(engine, 32, 60)
    gauges = [
        row(name, at, value)
        for at in range(200 * MS, round_.end_ns - 600 * MS, 100 * MS)
        for name, value in (("running", 9.0), ("waiting", 23.0))
    ]
    preempted = [row("preemptions", -100 * MS, 11), row("preemptions", round_.end_ns, 491)]
    result, doubts = judged(watched(round_, lambda t, _: t, *gauges, *preempted))
    server = result.server
    assert (server.running_mean, server.running_max, server.waiting_max) == (9, 9, 23)
    assert server.preemptions == 480
    assert doubts["preempted"].evidence["preemptions"] == 480
    assert doubts["oversubscribed"].evidence["ran_at_most"] == 9
    assert not result.steady.found


def test_a_client_that_times_wrongly_leaves_the_headline_to_the_server():
    """All tokens arrive, but a proxy hands them on at 3 % more than the engine's pace."""
    replies = [steady_stream(100 * MS, 20 * MS, 200) for _ in range(4)]
    round_ = as_round(replies)
    made = [
        4 * min(200, max(0, 1 + (at - 60 * MS) // (20_600_000))) for at in range(0, 5 * S, 100 * MS)
    ]
    rows = [row("generated_tok", -100 * MS, 0)]
    rows += [row("generated_tok", k * 100 * MS, value) for k, value in enumerate(made)]
    result, doubts = judged(msgspec.structs.replace(round_, samples=rows))
    assert result.ledger.foreign == 0
    assert result.agreement_pct == pytest.approx(3, abs=0.7)
    assert result.steady.headline == "server"
    assert result.server.output_tok_per_s.point == pytest.approx(RATE / 1.03, rel=0.005)
    assert "client_server_disagree" in doubts


def test_polls_of_slots_give_the_rate_of_a_burst_only():
    round_ = watched(burst(ENGINE, 4, 200), lambda t, _: t, name="generated_tok_live")
    result, _ = judged(round_)
    assert result.server.output_tok_per_s.point == pytest.approx(RATE, rel=0.01)
    assert (result.ledger.generated, result.agreement_pct) == (None, None)
    loop = watched(closed_loop(ENGINE, 4, 50, 10 * S), lambda t, _: t, name="generated_tok_live")
    assert judged(loop)[0].server.output_tok_per_s is None


def test_the_larger_of_two_counters_is_the_ledger():
    """A realtime counter leaves out first tokens, one at the end what was cut."""
    round_ = watched(burst(ENGINE, 4, 200), lambda t, _: max(0, t - 4))
    at_end = [row("generated_tok_at_end", -S, 50), row("generated_tok_at_end", 6 * S, 850)]
    result, _ = judged(msgspec.structs.replace(round_, samples=[*round_.samples, *at_end]))
    assert (result.ledger.generated, result.ledger.foreign) == (800, 0)


def buckets(name: str, at: int, counts: Sequence[float], total: float) -> list[ServerSample]:
    edges = ("le=0.1", "le=1", "le=inf")
    rows = [row(f"{name}_bucket", at, n, le) for le, n in zip(edges, counts, strict=True)]
    return [*rows, row(f"{name}_count", at, counts[-1]), row(f"{name}_sum", at, total)]


def test_queue_time_over_the_round_of_a_burst():
    round_ = watched(
        burst(ENGINE, 4, 200),
        lambda t, _: t,
        *buckets("queue_s", -100 * MS, (50, 50, 50), 2.0),
        *buckets("queue_s", 5 * S, (51, 53, 54), 7.0),
    )
    found = judged(round_)[0].server.queue_ms
    assert found == {"mean": 1250, "p50": pytest.approx(550), "p95": {"gt": 1000}}


def test_a_histogram_that_appears_later_began_from_nothing():
    late = buckets("queue_s", 5 * S, (4, 4, 4), 0.2)
    found = judged(watched(burst(ENGINE, 4, 200), lambda t, _: t, *late))[0].server.queue_ms
    assert found == {"mean": 50, "p50": {"le": 100}, "p95": {"le": 100}}
    only = as_round([steady_stream(0, 20 * MS, 200)], samples=late)
    assert judged(only)[0].server.queue_ms is None


def test_queue_time_over_the_window_of_a_loop():
    loop = closed_loop(ENGINE, 4, 50, 20 * S)
    start = buckets("queue_s", -100 * MS, (0, 0, 0), 0)
    ramp = buckets("queue_s", 300 * MS, (0, 0, 4), 40.0)
    later = buckets("queue_s", 18 * S, (60, 60, 64), 43.0)
    found = judged(watched(loop, lambda t, _: t, *start, *ramp, *later))[0].server.queue_ms
    assert found == {"mean": 50, "p50": {"le": 100}, "p95": {"le": 100}}


def test_acceptance_by_position():
    round_ = burst(ENGINE, 4, 200)
    rows = []
    for at, k in ((-100 * MS, 0), (S, 1), (3 * S, 3), (5 * S, 4)):
        rows += [
            row("spec_drafts", at, 100 * k),
            row("spec_draft_tok", at, 300 * k),
            row("spec_accepted_tok", at, 120 * k),
            *(
                row("spec_accepted_per_pos", at, share * k, f"position={place}")
                for place, share in enumerate((80, 30, 10))
            ),
        ]
    found = judged(watched(round_, lambda t, _: t, *rows))[0].server.acceptance
    assert found["mean_len"] == pytest.approx(2.2)
    assert found["rate"] == pytest.approx(0.4)
    assert found["per_position"] == pytest.approx([0.8, 0.3, 0.1])
    assert "compare at equal content" in found["note"]


def test_a_step_that_drafts_nothing_yields_one_token():
    # 100 of 300 tokens each second were accepted, in 10 drafts: 200 steps, 1.5 tokens each.
    rows = []
    for at in range(0, 6 * S, 100 * MS):
        rows += [
            row("spec_drafts", at, 10 * at / S),
            row("spec_accepted_tok", at, 100 * at / S),
        ]
    seen = watched(burst(ENGINE, 4, 200), lambda _, at: 300 * at / S, *rows)
    found = judged(seen)[0].server.acceptance
    assert found["mean_len"] == pytest.approx(11)
    assert found["tokens_per_step"] == pytest.approx(1.5)


def test_acceptance_from_a_gauge():
    rows = [row("spec_accept_len", at, value) for at, value in ((S, 2.0), (2 * S, 3.0))]
    found = judged(watched(burst(ENGINE, 4, 200), lambda t, _: t, *rows))[0].server.acceptance
    assert (found["mean_len"], found["rate"]) == (2.5, None)


def test_simulated_acceptance_by_trap_and_by_command_line():
    trap = Trap("simulated_acceptance", "fatal", "SGLANG_SIMULATE_ACC_LEN is set")
    _, doubts = judged(burst(ENGINE, 4, 200), traps=[trap])
    assert doubts["simulated_acceptance"].severity == "fatal"
    config = (
        '{"method": "mtp", "num_speculative_tokens": 2, "rejection_sample_method": "synthetic"}'
    )
    launch = ["vllm", "serve", "m", "--speculative-config", config]
    facts = TargetFacts(lane="lane", engine="vllm", base_url="http://127.0.0.1:1", launch=launch)
    assert "simulated_acceptance" in judged(burst(ENGINE, 4, 200), facts=facts)[1]
    plain = msgspec.structs.replace(facts, launch=["vllm", "serve", "m"])
    assert "simulated_acceptance" not in judged(burst(ENGINE, 4, 200), facts=plain)[1]


@pytest.mark.parametrize("source", ["host", "gpu", "observer"])
def test_rows_of_the_machine_alone_are_no_server(source):
    round_ = burst(ENGINE, 4, 200, samples=[row("gpu_util", S, 0.9, source=source)])
    assert judged(round_)[0].server.source == "none"
    failed = burst(ENGINE, 4, 200, samples=[row("event", S, 404, "scrape_failed")])
    assert judged(failed)[0].server.source == "none"


def test_cost_of_reading():
    round_ = watched(burst(ENGINE, 4, 200), lambda t, _: t, event("scrape_failed", S))
    found = judged(round_)[0].server.scrape_ms
    assert (found["failed"], found["mean"], found["max"]) == (1, 2, 2)
    assert found["n"] == len({s.sent_ns for s in round_.samples})


def test_log_windows_stand_in_for_counters():
    rows = []
    for k, running in enumerate((2, 4, 4, 4, 4, 4, 1)):
        rows.append(row("log_running", (k + 1) * S, running, source="log"))
        rows.append(row("log_output_tok_per_s", (k + 1) * S, 190 + k, source="log"))
    server = judged(burst(ENGINE, 4, 400, samples=rows))[0].server
    assert server.source == "log"
    assert server.log_windows == {"n": 3, "tok_per_s": 193, "min": 192, "max": 194}
    assert server.output_tok_per_s.point == 193
    assert server.running_max == 4


def test_a_loop_tells_decode_at_n_and_its_start_wave():
    loop = closed_loop(ENGINE, 4, 50, 30 * S)
    result, _ = judged(loop)
    assert result.decode_at_n.tok_per_s.point == pytest.approx(RATE, rel=0.005)
    assert 5 < result.decode_at_n.observed_s < 30
    assert result.start_wave.n == 4
    assert result.start_wave.max == pytest.approx(80)
    assert judged(burst(ENGINE, 4, 200))[0].decode_at_n is None


def test_a_metrics_page_of_which_nothing_is_known():
    round_ = burst(ENGINE, 4, 200)
    mark = row("event", S, 240.0, "log_unparsed")
    result, doubts = judged(msgspec.structs.replace(round_, samples=[mark]))
    assert doubts["log_unparsed"].evidence == {"lines": 240, "page": "metrics"}
    assert (result.server.source, result.server.preemptions) == ("none", None)
    known = watched(round_, lambda t, _: t, mark)
    assert "log_unparsed" not in judged(known)[1]
