from concbench.analyse.pairing import mean_of, paired_by_order, paired_by_runs, runs_of
from concbench.analyse.runvalues import RoundValues


def values(place, lane, value=1.0, name=None):
    return RoundValues(
        round_id=name or f"r{place}",
        lane=lane,
        link=None,
        key=(50, 4, None),
        cell=f"{lane}.c4",
        place=place,
        values={"m": value},
        estimand="decode",
        output_tok=(1,),
    )


def sides(order):
    rounds = [values(place, letter) for place, letter in enumerate(order)]
    return [r for r in rounds if r.lane == "A"], [r for r in rounds if r.lane == "B"]


def ids(paired):
    return [(a[0].round_id, b[0].round_id) for a, b in paired.pairs]


def test_neighbours_are_pairs():
    found = paired_by_order(*sides("ABBAABBA"))
    assert found.interleaved
    assert ids(found) == [("r0", "r1"), ("r3", "r2"), ("r4", "r5"), ("r7", "r6")]
    assert len(found.controls) == 4


def test_a_last_one_is_left_over():
    assert ids(paired_by_order(*sides("ABBAA"))) == [("r0", "r1"), ("r3", "r2")]


def test_blocks_are_not_interleaved_and_paired_by_number():
    found = paired_by_order(*sides("AAABBB"))
    assert not found.interleaved
    assert ids(found) == [("r0", "r3"), ("r1", "r4"), ("r2", "r5")]
    assert not paired_by_order(*sides("AABB")).interleaved
    assert not paired_by_order(*sides("ABBA"), same_study=False).interleaved


def test_nothing_on_one_side():
    assert paired_by_order(*sides("AAA")).pairs == ()
    assert paired_by_order([], []).pairs == ()


def test_a_retracted_round_drops_its_pair_and_shifts_none():
    found = paired_by_order(*sides("ABBAABBA"), frozenset({"r2"}))
    assert found.interleaved
    assert ids(found) == [("r0", "r1"), ("r4", "r5"), ("r7", "r6")]
    assert len(found.controls) == 4
    assert len(paired_by_order(*sides("ABBA"), frozenset({"r0"})).controls) == 1


def test_runs_on_record():
    rounds = [values(place, letter, place) for place, letter in enumerate("AABBBBAAAA")]
    notes = [
        {"letter": "A", "pair": 0, "rounds": ["r0", "r1"]},
        {"letter": "B", "pair": 0, "rounds": ["r2", "r3"]},
        {"letter": "B", "pair": 1, "rounds": ["r4", "r5"]},
        {"letter": "A", "pair": 1, "rounds": ["r6", "r7"]},
        {"letter": "A", "pair": None, "rounds": ["r8", "r9"]},
        {"letter": "C", "pair": 1, "rounds": []},
        {"nonsense": True},
    ]
    runs = runs_of(notes)
    assert len(runs) == 5
    found = paired_by_runs(rounds, runs)
    assert [(mean_of(a, "m"), mean_of(b, "m")) for a, b in found.pairs] == [(0.5, 2.5), (6.5, 4.5)]
    assert [mean_of(run, "m") for run in found.controls] == [0.5, 6.5, 8.5]
    gone = paired_by_runs(rounds, runs, frozenset({"r2", "r3", "r8"}))
    assert len(gone.pairs) == 1
    assert [mean_of(run, "m") for run in gone.controls] == [0.5, 6.5, 9.0]
