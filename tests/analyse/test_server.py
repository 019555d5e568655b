from __future__ import annotations

import msgspec
import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.counters import fell, growth, points, series
from concbench.domain import Round, ServerSample
from tests.analyse.simulate import MS, Engine, S, burst

ENGINE = Engine(step_ns=lambda batch: 20 * MS, prefill_ns=20 * MS)


def sample(at: int, value: float | None, name: str = "generated_tok", **fields) -> ServerSample:
    return ServerSample(
        sent_ns=at - MS, received_ns=at + MS, source="metrics", name=name, value=value, **fields
    )


def watched(foreign_per_s: float = 0.0, scale: float = 1.0, name: str = "generated_tok") -> Round:
    """A burst of 4 with a counter read each 100 ms, and once before and after."""
    round_ = burst(ENGINE, 4, 200)
    times = sorted(round_.events.kernel_ns)
    points = [-100 * MS, *range(0, round_.end_ns + 200 * MS, 100 * MS)]
    samples = [
        sample(
            at, 1000 + scale * sum(t <= at for t in times) + foreign_per_s * max(0, at) / S, name
        )
        for at in points
    ]
    return msgspec.structs.replace(round_, samples=samples)


def judged(round_: Round):
    result, doubts = cell_result([round_])
    return result, {doubt.code for doubt in doubts}


def test_balanced_ledger_and_agreement():
    result, doubts = judged(watched())
    assert (result.ledger.received, result.ledger.generated, result.ledger.foreign) == (800, 800, 0)
    assert result.agreement_pct == pytest.approx(0, abs=0.6)
    assert result.server.output_tok_per_s is not None
    assert result.server.source == "metrics"
    assert not {"client_server_disagree", "foreign_traffic"} & doubts


def test_foreign_traffic_unbalances_the_ledger():
    result, doubts = judged(watched(foreign_per_s=50))
    assert result.ledger.foreign is not None
    assert result.ledger.foreign > 100
    assert result.agreement_pct is None
    assert "foreign_traffic" in doubts


def test_lost_tokens_disagree():
    result, doubts = judged(watched(scale=0.9))
    assert result.ledger.foreign == -80
    assert "client_server_disagree" in doubts


def test_counter_at_the_end_compares_whole_rounds():
    result, _ = judged(watched(name="generated_tok_at_end"))
    assert result.ledger.generated == 800
    assert result.agreement_pct == 0
    assert result.server.output_tok_per_s is None


def test_without_samples_nothing_is_claimed():
    result, doubts = judged(burst(ENGINE, 4, 200))
    assert (result.server.source, result.ledger.generated, result.agreement_pct) == (
        "none",
        None,
        None,
    )
    assert "client_server_disagree" not in doubts


def test_a_counter_that_fell_has_no_growth():
    round_ = burst(ENGINE, 4, 200)
    samples = [sample(0, 500), sample(S, 20)]
    result, doubts = judged(msgspec.structs.replace(round_, samples=samples))
    assert "counters_unusable" in doubts
    assert result.ledger.generated is None


def test_replicas_add_up_and_unknown_values_are_skipped():
    samples = [
        sample(S, 5, labels="engine=0"),
        sample(S, 7, labels="engine=1"),
        sample(2 * S, None),
        sample(3 * S, 20),
    ]
    assert series(samples, "generated_tok") == [(S, 12), (3 * S, 20)]
    assert growth(samples, "generated_tok") == 8
    assert growth(samples[:2], "generated_tok") is None
    assert fell(points(samples, "generated_tok")) is None


def test_gauges_preemptions_and_acceptance():
    round_ = burst(ENGINE, 4, 200)
    middle = round_.end_ns // 2
    samples = [
        sample(middle, 3, "running"),
        sample(middle + 10, 4, "running"),
        sample(middle, 2, "waiting"),
        sample(middle, 0.4, "kv_usage"),
        *(sample(at, value, "preemptions") for at, value in ((0, 7), (round_.end_ns, 9))),
        *(sample(at, value, "spec_drafts") for at, value in ((0, 0), (round_.end_ns, 100))),
        *(sample(at, value, "spec_accepted_tok") for at, value in ((0, 0), (round_.end_ns, 250))),
    ]
    result, doubts = judged(msgspec.structs.replace(round_, samples=samples))
    server = result.server
    assert (server.running_mean, server.waiting_max, server.kv_usage_max) == (3.5, 2, 0.4)
    assert server.preemptions == 2
    assert "preempted" in doubts
    assert server.running_max == 4
    assert server.acceptance is not None
    assert (server.acceptance["mean_len"], server.acceptance["rate"]) == (3.5, None)
    assert server.acceptance["content"] == "prose"
