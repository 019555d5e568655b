"""The driver, and what it promises of error rates: comparisons in virtual time."""

import pytest
from bench.experiments import (
    World,
    ended,
    is_faster,
    mean_runs,
    names_runs_apart,
    share,
    shares,
)

from concbench.analyse.driver import (
    Progress,
    headline_rows,
    hopeless,
    look,
    looks_up_to,
    next_block,
    settled,
)
from concbench.plan.order import letters_of
from tests.analyse.test_verdict import comparison, one, spread

NUMBER = 500


def test_the_order_of_runs_up_to_the_last_look():
    assert letters_of(next_block(Progress())) == "ABBAABBAABA"
    open_ = [one(spread(1.02, 0.05))]
    assert letters_of(next_block(Progress(pairs=5, verdicts=open_))) == "BAABA"
    assert letters_of(next_block(Progress(pairs=7, verdicts=open_))) == "BAABBAA"
    assert next_block(Progress(pairs=10, verdicts=open_)) is None


def test_it_stops_when_all_is_settled():
    done = one(spread(1.5, 0.01))
    open_ = one(spread(1.02, 0.05))
    assert next_block(Progress(pairs=5, verdicts=[done, done])) is None
    assert next_block(Progress(pairs=5, verdicts=[done, open_])) is not None


def test_a_small_drift_may_have_been_noise():
    assert not settled(one(spread(1.5, 0.01), controls=[100, 100, 102, 102]))
    assert settled(one(spread(1.5, 0.01), controls=[100, 100, 104, 104]))


def test_a_look_judges():
    assert look([comparison(spread(1.5, 0.01))])[0].verdict == "b_faster"


def test_a_users_own_limit():
    assert looks_up_to(10) == (5, 7, 10)
    assert looks_up_to(6) == (5, 6)
    assert looks_up_to(3) == (3,)
    assert looks_up_to(20) == (5, 7, 10, 20)
    assert letters_of(next_block(Progress(looks=(3,)))) == "ABBAABA"


@pytest.mark.parametrize("world", [World(), World(rounds=1), World(levels=4, rounds=1)])
def test_without_a_difference_hardly_ever_faster(world):
    assert share(ended(world, NUMBER), is_faster) <= 0.05


@pytest.mark.parametrize("difference", [0.05, -0.05])
def test_five_percent_is_found(difference):
    found = ended(World(difference=difference), NUMBER)
    name = "b_faster" if difference > 0 else "a_faster"
    assert shares(found)[name] >= 0.9
    wrong = "a_faster" if difference > 0 else "b_faster"
    assert share(found, lambda row: row.verdict == wrong) == 0


def test_at_the_true_delta_hardly_ever_equivalent():
    found = ended(World(difference=0.03, rounds=1), NUMBER)
    assert share(found, lambda row: row.verdict == "equivalent") <= 0.05


@pytest.mark.parametrize("drift", [-0.10, 0.10])
def test_a_machine_that_slows_down_is_drifted_and_never_faster(drift):
    found = ended(World(drift=drift), NUMBER)
    assert share(found, is_faster) == 0
    assert shares(found)["drifted"] >= 0.95


@pytest.mark.parametrize(("slow", "share_slow"), [(0.33, 0.4), (0.15, 0.3)])
def test_a_hidden_slow_state_is_named(slow, share_slow):
    found = ended(World(slow=slow, slow_share=share_slow), NUMBER)
    assert share(found, names_runs_apart) >= 0.95
    assert share(found, is_faster) <= 0.05
    assert share(ended(World(), NUMBER), names_runs_apart) == 0


def test_stopping_early_saves_runs():
    assert mean_runs(ended(World(difference=0.05), 100)) < 13


def test_the_rate_of_each_level_decides_when_to_stop():
    rate = one(spread(1.5, 0.01))
    tail = one(spread(1.02, 0.05), metric="ttft_ms.p50", better="lower")
    assert headline_rows([rate, tail]) == [rate]
    assert next_block(Progress(pairs=5, verdicts=[rate, tail])) is None
    other = one(spread(1.02, 0.05), concurrency=8)
    assert headline_rows([rate, tail, other]) == [rate, other]
    assert next_block(Progress(pairs=5, verdicts=[rate, tail, other])) is not None


def test_a_narrow_interval_may_be_enough():
    open_ = one(spread(1.03, 0.004))
    wide = one(spread(1.02, 0.05))
    assert settled(open_, until=0.01)
    assert not settled(wide, until=0.01)
    assert next_block(Progress(pairs=5, verdicts=[wide], until=0.2)) is None


def test_lanes_that_are_unlike_by_nature_end_it_and_those_unlike_by_chance_do_not():
    slots = one(spread(1.5, 0.01), unlike=["slots"])
    assert hopeless([slots, slots])
    assert not hopeless([slots, one(spread(1.5, 0.01))])
    assert not hopeless([one(spread(1.5, 0.01), unlike=["output_length"])])
    assert not hopeless([one(spread(1.5, 0.01), unlike=["slots"], accepted=["slots"])])
    assert not hopeless([])


def test_without_one_complete_pair_nothing_is_decided():
    row = one([])
    assert (row.verdict, row.why, row.ratio) == ("inconclusive", "no pair is complete", None)


def test_the_default_design_finds_five_percent_with_two_rounds_a_run_and_more():
    for rounds in (2, 4):
        found = ended(World(difference=0.05, rounds=rounds), NUMBER)
        assert shares(found)["b_faster"] >= 0.9
