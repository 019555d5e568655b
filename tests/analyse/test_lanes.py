from __future__ import annotations

from concbench.analyse.lanes import inflight_limit, lane_doubts, lane_results, traps_of

GAP = {
    "kind": "reference",
    "code": "missing_flag",
    "doubt": "lane_incomplete",
    "message": "r.toml: --kv-cache-dtype = fp8 is missing",
    "evidence": {"name": "kv-cache-dtype", "wanted": "fp8", "got": None},
}
TRAP = {
    "kind": "trap",
    "code": "simulated_acceptance",
    "doubt": "simulated_acceptance",
    "message": "drafts are accepted at a synthetic rate",
    "evidence": {"group": "fatal"},
}
NOTES = [
    {"lane": "a", "flags": {"old": 1}},
    {
        "lane": "a",
        "extra": {"inflight_limit": 10},
        "flags": {"np": 4},
        "reference": None,
        "findings": [GAP, TRAP],
    },
    {"lane": "b"},
]


def test_the_latest_note_of_a_lane_stands():
    found = lane_results(NOTES)
    assert list(found) == ["a", "b"]
    assert (found["a"].flags, found["a"].reference) == ({"np": 4}, None)
    assert found["b"].findings == []


def test_limits_and_traps_are_found_where_they_were_recorded():
    found = lane_results(NOTES)
    assert [inflight_limit(found.get(name)) for name in ("a", "b", "none")] == [10, None, None]
    [trap] = traps_of(found["a"])
    assert (trap.code, trap.group) == ("simulated_acceptance", "fatal")
    assert traps_of(None) == []


def test_what_a_lane_lacks_is_a_doubt_of_the_whole_study():
    [doubt] = lane_doubts(lane_results(NOTES))
    assert (doubt.code, doubt.severity, doubt.cell) == ("lane_incomplete", "warning", None)
    assert doubt.message == "a: r.toml: --kv-cache-dtype = fp8 is missing"
    assert doubt.evidence == {"lane": "a", "name": "kv-cache-dtype", "wanted": "fp8", "got": None}
