from concbench.report.sides import sides_of
from tests.report.conftest import burst, comparison


def test_one_lane_has_no_other_side():
    assert sides_of(burst()) is None


def test_differences_are_marked_and_the_unfair_named():
    sides = sides_of(comparison())
    assert sides is not None
    assert sides.lanes == ("gguf", "nvfp4")
    marks = {row.name: row.mark for row in sides.rows}
    assert marks["quantization"] == "unfair"
    assert marks["engine"] == "differs"
    assert marks["KV cache type"] == ""
    quantization = next(row for row in sides.rows if row.name == "quantization")
    assert quantization.differs == (False, True)


def test_an_unknown_side_is_no_difference_and_facts_of_none_are_left_out():
    result = comparison()
    first, second = result.targets.values()
    result.targets = {
        lane: type(facts)(**{f: getattr(facts, f) for f in facts.__struct_fields__} | changed)
        for (lane, facts), changed in zip(
            result.targets.items(), ({"memory_bytes": None}, {"memory_bytes": 9}), strict=True
        )
    }
    sides = sides_of(result)
    assert sides is not None
    marks = {row.name: row.mark for row in sides.rows}
    assert marks["memory, bytes"] == "unknown"
    assert "cold start, s" not in marks
    assert first.lane != second.lane
