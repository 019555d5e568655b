from __future__ import annotations

from typing import Any

from concbench.domain import TargetFacts
from concbench.report.lanes import lane_details, lane_line, teardown_text
from concbench.result import LaneResult

GONE: dict[str, Any] = {
    "signal": "SIGTERM",
    "left_pids": [],
    "port_free": True,
    "memory_back": True,
    "rss_before_bytes": 1 << 29,
}


def facts(**more: Any) -> TargetFacts:
    return TargetFacts(
        lane="a",
        engine="vllm",
        base_url="http://h:1",
        facts_from={"tensor_parallel": "endpoint"},
        **more,
    )


def lane(*findings: dict[str, Any]) -> LaneResult:
    return LaneResult(
        extra={"tensor_parallel": 2, "unknown": None},
        flags={"max-num-seqs": 8, "api-key": "secret"},
        env={"HF_HUB_OFFLINE": "1"},
        reference="r.toml",
        cold_start={"listening_s": 1.5},
        findings=list(findings),
    )


def test_the_line_counts_gaps_and_traps():
    gap = {"kind": "reference", "code": "missing_flag", "message": "--x is missing"}
    trap = {"kind": "trap", "code": "eager", "message": "graphs are off"}
    assert lane_line(facts(), None) == ()
    assert lane_line(None, lane()) == ("recipe r.toml: carried in full",)
    assert lane_line(facts(teardown=GONE), lane(gap, trap)) == (
        "recipe r.toml: 1 of its settings missing or different",
        "1 known trap (listed on the page)",
        "stopped by SIGTERM, port free, 0.50 GiB back",
    )


def test_everything_known_is_listed_with_its_source_and_without_secrets():
    trap = {"kind": "trap", "code": "eager", "message": "graphs are off"}
    found = lane_details(facts(teardown=GONE), lane(trap))
    listed = {one.name: one.text for one in found}
    assert listed["tensor_parallel"] == "2"
    assert found[0].source == "endpoint"
    assert "unknown" not in listed
    assert "--max-num-seqs 8" in listed["flags"]
    assert "secret" not in listed["flags"]
    assert listed["environment"] == "HF_HUB_OFFLINE = 1"
    assert listed["cold start, steps in s"] == "listening_s = 1.500"
    assert listed["trap: eager"] == "graphs are off"
    assert listed["how it ended"] == teardown_text(GONE)
    assert lane_details(None, None) == ()


def test_what_is_left_over_is_said_loudly():
    left = {**GONE, "left_pids": [7], "port_free": False, "memory_back": False, "signal": None}
    told = teardown_text({**left, "container_gone": False})
    assert told == (
        "had ended already, STILL RUNNING: pid 7, CONTAINER STILL THERE, PORT NOT FREE, "
        "MEMORY NOT BACK"
    )
