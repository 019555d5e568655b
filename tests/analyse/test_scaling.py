from __future__ import annotations

import pytest

from concbench.analyse.cell import cell_result
from concbench.analyse.prefill import PrefillPoint, prefill_point, prefill_slope
from concbench.analyse.scaling import scaling
from tests.analyse.simulate import MS, Engine, Reply, as_round, burst


def cells(step_ns, levels=(1, 2, 4, 8), **fields):
    engine = Engine(step_ns=step_ns, prefill_ns=20 * MS, **fields)
    return [cell_result([burst(engine, n, 260)] * 4)[0] for n in levels]


def test_memory_bound_engine_has_its_ceiling_beyond():
    found = scaling(cells(lambda batch: 20 * MS))
    assert [p.concurrency for p in found.points] == [1, 2, 4, 8]
    assert [p.factor for p in found.points] == pytest.approx([1, 2, 4, 8], rel=0.01)
    assert found.points[0].gain_per_doubling is None
    assert found.gain_min == pytest.approx(2, rel=0.01)
    assert (found.ceiling, found.best_concurrency) == ("beyond", 8)


def test_compute_bound_engine_has_reached_it():
    found = scaling(cells(lambda batch: 10 * MS * batch))
    assert found.points[-1].factor == pytest.approx(1, rel=0.02)
    assert found.ceiling == "reached"


def test_an_engine_that_gets_worse_has_passed_it():
    assert scaling(cells(lambda batch: 10 * MS * max(batch, batch**2 // 4))).ceiling == "passed"


def test_batch_figures_are_compared_where_a_level_has_no_window():
    found = scaling(cells(lambda batch: 20 * MS, slots=4))
    assert {p.estimand for p in found.points} == {"batch"}


def test_a_step_between_near_levels_is_not_scaled_to_a_doubling():
    found = scaling(cells(lambda batch: 20 * MS, levels=(8, 16, 31, 32, 33)))
    gains = {p.concurrency: p.gain_per_doubling for p in found.points}
    assert gains[8] is None
    assert [gains[n] for n in (16, 31, 32, 33)] == pytest.approx([2] * 4, rel=0.02)
    assert found.ceiling == "beyond"


def test_a_near_level_that_surely_brings_nothing_is_the_ceiling():
    found = scaling(cells(lambda batch: 2.5 * MS * max(batch, 8), levels=(4, 8, 10)))
    assert found.ceiling == "reached"


def test_no_curve_of_nothing():
    assert scaling([]).ceiling == "unknown"
    one = scaling(cells(lambda batch: 20 * MS, levels=(4,)))
    assert (one.ceiling, one.points[0].factor) == ("unknown", None)


def test_prefill_is_the_slope_over_uncached_tokens():
    def point(prompt: int, cached: int, ttft_ms: int):
        extra = {"prompt_tok": prompt, "cached_tok": cached}
        return prefill_point(as_round([Reply(times=[ttft_ms * MS], extra=extra)]))

    # 30 ms of fixed cost, then 2,000 tokens/s.
    short, long = point(600, 100, 280), point(2100, 100, 1030)
    assert short == PrefillPoint(500, 280)
    found = prefill_slope([short] * 3, [long] * 3)
    assert found is not None
    assert found.point == pytest.approx(2000)


@pytest.mark.parametrize(
    ("short", "long"),
    [((50, 60), (200, 100)), ((500, 300), (520, 310)), ((500, 300), (2000, 200)), ((0, 9), (0, 9))],
)
def test_prefill_is_unknown_rather_than_wrong(short, long):
    assert prefill_slope([PrefillPoint(*short)], [PrefillPoint(*long)]) is None


def test_prefill_needs_one_stream_at_a_time():
    assert prefill_point(as_round([Reply(times=[5]), Reply(times=[5])])) is None
    assert prefill_point(as_round([])) is None
    assert prefill_slope([], []) is None
