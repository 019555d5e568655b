"""What a result knows that forbids to read a difference between its cells."""

from msgspec.structs import replace

from concbench.cli.matrix_result import caveats_of
from concbench.domain import Doubt, TargetFacts
from concbench.result import LaneResult
from tests.analyse.test_matrix_against import lanes
from tests.report.conftest import burst


def doubted(cell, code, severity="fatal"):
    return Doubt(code=code, severity=severity, message="m", cell=cell)


def target(lane, **more):
    return TargetFacts(lane=lane, engine="llamacpp", base_url="http://x", **more)


def result(*doubts):
    cells = lanes()
    facts = {"a": target("a", kv_cache_dtype="f16"), "b": target("b", kv_cache_dtype="q8_0")}
    flags = {"a": LaneResult(flags={"parallel": 4}), "b": LaneResult(flags={"parallel": 8})}
    return replace(burst(), cells=cells, doubts=list(doubts), targets=facts, lanes=flags)


def test_fatal_doubts_are_by_cell_and_one_of_the_whole_study_is_on_all():
    first = lanes()[0].cell
    told = caveats_of(
        result(doubted(first, "stalled"), doubted(first, "late_reads", "warning")), ()
    )
    assert told.fatal[first] == ["stalled"]
    assert sum(len(codes) for codes in told.fatal.values()) == 1
    everywhere = caveats_of(result(doubted(None, "clock_stepped")), ())
    assert set(map(tuple, everywhere.fatal.values())) == {("clock_stepped",)}
    elsewhere = caveats_of(result(doubted("no such cell", "stalled")), ())
    assert not any(elsewhere.fatal.values())


def test_controls_are_by_lane_and_link():
    control = {"cell": lanes()[0].cell, "lane": "a", "drift_pct": 4.5}
    assert caveats_of(result(), [control]).drift_pct == {("a", None): 4.5}


def test_what_is_unlike_comes_from_facts_and_flags():
    told = caveats_of(result(), ())
    assert list(told.unlike("a", "b")) == ["kv_cache_dtype", "slots"]
    assert list(told.unlike("a", "a")) == []
    assert list(told.unlike("a", "nobody")) == []
