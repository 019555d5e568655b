import math

import numpy as np
import pytest

from concbench.analyse.crossover import Contest, contests, crossover, unbeaten
from concbench.analyse.verdict import judge
from tests.analyse.test_verdict import comparison, spread


def contest(level, gain, half=0.01, a="gguf", b="nvfp4"):
    return Contest(level=level, a=a, b=b, gain=gain, low=gain - half, high=gain + half)


def fought(rows):
    return [one for _, one in contests(rows, judge(rows))]


def ranges(entry):
    return [(part["from"], part["to"], part["winner"]) for part in entry["ranges"]]


def test_ranges_with_ties_and_the_bracket():
    gains = {1: -0.5, 2: -0.3, 4: -0.1, 8: 0.002, 16: -0.004, 32: 0.3, 64: 0.5}
    entry = crossover("steady", [contest(n, gain) for n, gain in gains.items()])
    assert ranges(entry) == [(1, 4, "gguf"), (8, 16, "tie"), (32, 64, "nvfp4")]
    assert entry["bracket"] == [4, 32]
    assert entry["point"] is None
    assert entry["basis"] == "intervals"


def test_a_point_only_within_one_doubling():
    entry = crossover("steady", [contest(4, -0.2), contest(8, 0.2)])
    assert entry["bracket"] == [4, 8]
    assert entry["point"] == pytest.approx(math.sqrt(32))
    assert crossover("steady", [contest(4, -0.2), contest(9, 0.2)])["point"] is None


@pytest.mark.parametrize("gains", [(0.2, 0.2, 0.3), (0.0, 0.0, 0.0), (-0.3, -0.3, 0.0)])
def test_none_is_an_answer(gains):
    entry = crossover("steady", [contest(2**k, gain) for k, gain in enumerate(gains)])
    assert (entry["bracket"], entry["point"], entry["note"]) == (None, None, None)


def test_two_changes_are_no_single_crossover():
    entry = crossover("steady", [contest(1, -0.2), contest(2, 0.2), contest(4, -0.2)])
    assert entry["note"] == "no single crossover"
    assert entry["bracket"] is None


def test_without_intervals_delta_has_to_do():
    bare = [
        Contest(level=n, a="gguf", b="vllm", gain=math.log(b / a))
        for n, a, b in [(1, 136, 56.9), (2, 184.8, 107.6), (4, 319.8, 208.5), (8, 429.2, 436.2)]
    ]
    entry = crossover("batch", bare)
    assert ranges(entry) == [(1, 4, "gguf"), (8, 8, "tie")]
    assert entry["basis"] == "points"


def test_any_number_of_lanes():
    def level(n, **rates):
        names = list(rates)
        return [
            contest(n, math.log(rates[b] / rates[a]), a=a, b=b)
            for k, a in enumerate(names)
            for b in names[k + 1 :]
        ]

    found = [
        *level(1, gguf=136, vllm=145, sglang=227),
        *level(2, gguf=185, vllm=275, sglang=505),
        *level(4, gguf=320, vllm=613, sglang=520),
        *level(8, gguf=429, vllm=1080),
    ]
    entry = crossover("batch", found)
    assert ranges(entry) == [(1, 2, "sglang"), (4, 8, "vllm")]
    assert entry["bracket"] == [2, 4]
    near = level(1, a=100, b=100.5, c=80)
    assert unbeaten(near) == ["a", "b"]
    tied = crossover("batch", near + level(2, a=100, b=100.5, c=80))
    assert tied["ranges"] == [{"from": 1, "to": 2, "winner": "tie", "within": ["a", "b"]}]


def test_levels_without_a_verdict_are_left_out():
    rows = [
        comparison(spread(0.8, 0.01), concurrency=1),
        comparison(spread(1.2, 0.01), concurrency=2, fatal=["stalled"]),
        comparison(spread(1.2, 0.01), concurrency=4),
    ]
    entry = crossover("steady", fought(rows))
    assert ranges(entry) == [(1, 1, "old"), (4, 4, "new")]
    assert crossover("steady", fought(rows[:2])) is None


def test_lower_is_better_turns_the_winner():
    rows = [
        comparison(spread(ratio, 0.01), concurrency=n, better="lower")
        for n, ratio in [(1, 0.8), (2, 1.2)]
    ]
    assert ranges(crossover("ttft", fought(rows))) == [(1, 1, "new"), (2, 2, "old")]


def test_by_context():
    found = [contest(5000, -0.2), contest(32000, 0.2)]
    entry = crossover("steady", found, "context", concurrency=4)
    assert ranges(entry) == [(5000, 5000, "gguf"), (32000, 32000, "nvfp4")]
    assert (entry["axis"], entry["concurrency"]) == ("context", 4)


def test_the_bracket_covers_the_truth():
    """Curves that part by 10 % a doubling and cross between two levels, 200 times."""
    draw = np.random.default_rng(11)
    levels = [2**k for k in range(7)]
    covered = told = 0
    for _ in range(200):
        truth = draw.uniform(1, 5)
        rows = []
        for k, level in enumerate(levels):
            logs = draw.normal((k - truth) * 0.1, 0.007 * math.sqrt(2), 5)
            rows.append(comparison([(1.0, math.exp(log)) for log in logs], concurrency=level))
        bracket = crossover("steady", fought(rows))["bracket"]
        if bracket is not None:
            told += 1
            covered += bracket[0] <= 2**truth <= bracket[1]
    assert told >= 198
    assert covered / told >= 0.97
