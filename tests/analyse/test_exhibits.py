import numpy as np
import pytest

from concbench.analyse.estimate import summary
from concbench.analyse.evidence import gather
from concbench.analyse.exhibits import (
    CURVE_BINS,
    MOST_BARS,
    QUANTILES,
    TOLD_PCT,
    exhibit_of,
    quantile_curve,
)
from tests.report.synthetic import Engine, one_round

ENGINE = Engine("a", slots=64)


def shown(level=4, output_tok=120, rounds=2):
    made = [one_round(ENGINE, 512, level, k, output_tok, k) for k in range(rounds)]
    return made, exhibit_of(gather(made, ENGINE.facts()))


def test_a_small_distribution_is_kept_whole():
    curve = quantile_curve(np.array([3.0, 1.0, 2.0]))
    assert curve is not None
    assert curve.values == (1.0, 2.0, 3.0)
    assert curve.shares == pytest.approx((1 / 3, 2 / 3, 1), abs=1e-4)
    assert quantile_curve(np.empty(0)) is None


def test_a_large_distribution_is_thinned_between_its_ends():
    values = np.random.default_rng(1).normal(100, 10, 100_000)
    curve = quantile_curve(values)
    assert curve is not None
    assert len(curve.values) <= QUANTILES
    assert curve.values[0] == pytest.approx(values.min(), abs=1e-3)
    assert curve.values[-1] == pytest.approx(values.max(), abs=1e-3)
    middle = np.interp(0.5, curve.shares, curve.values)
    assert middle == pytest.approx(np.median(values), rel=0.01)


@pytest.mark.parametrize("n", [61, 192, 1000, 54_321])
def test_what_a_page_tells_is_kept_of_a_thinned_distribution(n):
    values = np.random.default_rng(n).lognormal(3, 1, n)
    curve = quantile_curve(values)
    exact = summary(values)
    assert len(curve.values) <= QUANTILES
    for percent in TOLD_PCT:
        share = percent / 100
        told = next(v for v, s in zip(curve.values, curve.shares, strict=True) if s >= share)
        nearest = np.sort(values)[-(-n * percent // 100) - 1]
        assert told == pytest.approx(nearest, abs=1e-4)
    middle = next(v for v, s in zip(curve.values, curve.shares, strict=True) if s >= 0.5)
    assert middle == pytest.approx(exact.p50, abs=1e-4)


def test_gaps_of_all_tokens_become_bins_of_a_few_percent():
    made, exhibit = shown()
    gaps = exhibit.gaps
    assert gaps is not None
    assert gaps.n == sum(len(each.events) - len(each.requests) for each in made)
    assert gaps.shares[-1] == 1.0
    stamps = np.sort([at for at, r in zip(made[0].events.kernel_ns, made[0].events.request,
                                          strict=True) if r == 0])  # fmt: skip
    middle = float(np.interp(0.5, gaps.shares, gaps.values))
    assert middle == pytest.approx(np.median(np.diff(stamps)) / 1e6, rel=0.08)


def test_the_course_of_a_round():
    made, exhibit = shown()
    course = exhibit.course
    assert course is not None
    assert course.round_id == made[-1].round_id
    assert course.requests == len(course.bars) == 4
    assert course.window_s is not None
    assert 0 < course.window_s[0] < course.window_s[1] <= course.length_s
    for bar in course.bars:
        assert 0 <= bar.due_s <= bar.sent_s <= bar.first_s <= bar.end_s <= course.length_s
    assert max(course.in_flight[1]) == 4
    assert max(course.running[1]) == 4
    widths = course.length_s / len(course.rate[1])
    assert sum(course.rate[1]) * widths == pytest.approx(480, rel=0.01)
    inside = [rate for at, rate in zip(*course.server_rate, strict=True)
              if course.window_s[0] < at < course.window_s[1]]  # fmt: skip
    mine = [rate for at, rate in zip(*course.rate, strict=True)
            if course.window_s[0] < at < course.window_s[1]]  # fmt: skip
    assert np.mean(inside) == pytest.approx(np.mean(mine), rel=0.05)


def test_a_large_round_is_thinned():
    _, exhibit = shown(level=200, output_tok=300, rounds=1)
    course = exhibit.course
    assert course is not None
    assert course.requests == 200
    assert len(course.bars) == MOST_BARS
    assert {0, 199} <= {bar.index for bar in course.bars}
    assert len(course.rate[0]) <= CURVE_BINS
    assert len(course.running[0]) <= CURVE_BINS


def test_without_samples_and_window_the_curves_are_empty():
    import msgspec

    made = one_round(ENGINE, 512, 2, 0, 20, 0)
    bare = msgspec.structs.replace(made, samples=[])
    course = exhibit_of(gather([bare])).course
    assert course is not None
    assert course.running == course.server_rate == course.kv_usage == ((), ())
    assert course.window_s is None
    assert "50 are needed" in (course.no_window or "")
