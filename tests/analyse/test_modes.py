import numpy as np

from concbench.analyse.modes import modes


def test_two_states_are_told_apart():
    found = modes([63, 94, 63.4, 93.5, 94.4, 63])
    assert (found.n_low, found.n_high) == (3, 3)
    assert "3 near 63.1 and 3 near 94" in found.text


def test_one_run_apart_from_the_others_is_named():
    found = modes([100, 101, 70, 100.5, 99.8])
    assert (found.n_low, found.two_states) == (1, False)
    assert found.text == "one run near 70 and 4 others near 100"
    assert modes([70, 101, 70.2, 100.5, 99.8]).two_states


def test_few_runs_and_small_gaps_are_one_group():
    assert modes([63, 94, 63, 94]) is None
    assert modes([100, 104, 100, 104, 100]) is None
    assert modes([100.0] * 8) is None


def test_noise_is_hardly_ever_taken_for_two_states():
    draw = np.random.default_rng(2)
    for sd in (0.005, 0.015, 0.03):
        named = [modes(list(100 * np.exp(draw.normal(0, sd, 6)))) is not None for _ in range(2000)]
        assert np.mean(named) < 0.025, sd
