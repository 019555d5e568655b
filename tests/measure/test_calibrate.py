"""The client's ceiling: what follows from a ladder, and a ladder climbed for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from concbench.measure import calibrate
from concbench.measure.calibrate import Step, concluded


def step(streams: int, *, cpu: float = 0.1, **bound: float) -> Step:
    return Step(
        streams=streams,
        tok_per_s_a_stream=50,
        got_tok_per_s=50.0 * streams,
        ttft_mean_error_ms=0,
        ttft_p99_error_ms=0,
        rate_error_pct=0,
        read_lateness_p99_ms=0.1,
        remaining_p99_ms=0,
        loop_lag_p99_ms=0.1,
        client_cpu=cpu,
        server_late_p99_ms=0.1,
        bound=bound,
    )


def test_the_ceiling_is_the_last_load_that_held() -> None:
    found = concluded([step(16), step(64), step(256, late_events_pct=3.0)], 1, "kernel")
    assert found.method == "measured"
    assert found.ceiling_tok_per_s == 64 * 50
    assert found.ceiling_streams == 64


def test_a_ladder_that_ends_before_the_client_does_is_extrapolated_by_cpu() -> None:
    found = concluded([step(16), step(64, cpu=0.25)], 1, "kernel")
    assert found.method == "extrapolated"
    assert found.ceiling_tok_per_s == pytest.approx(64 * 50 / 0.25)
    assert concluded([step(64, cpu=0.5)], 2, "kernel").ceiling_tok_per_s == pytest.approx(12_800)


def test_a_client_that_holds_nothing_has_no_ceiling() -> None:
    found = concluded([step(1, late_events_pct=50.0)], 1, "user")
    assert found.method == "none"
    assert found.ceiling_tok_per_s is None
    assert found.ceiling_streams == 0


def test_calibrations_are_kept_by_machine_and_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, two = concluded([step(16)], 1, "kernel"), concluded([step(64)], 2, "kernel")
    assert calibrate.stored("abc") == {}
    path = calibrate.keep(one, "abc")
    calibrate.keep(two, "abc")
    assert path == tmp_path / "concbench" / "calibration-abc.json"
    assert calibrate.stored("abc") == {1: one, 2: two}
    assert calibrate.stored("def") == {}
    again = concluded([step(256)], 1, "kernel")
    calibrate.keep(again, "abc")
    assert calibrate.stored("abc") == {1: again, 2: two}
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"schema": "other/9", "calibrations": []}'])
def test_a_damaged_file_is_as_none(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = calibrate.cache_path("abc")
    path.parent.mkdir()
    path.write_text(content)
    assert calibrate.stored("abc") == {}


def test_a_real_ladder_agrees_with_the_null_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "LENGTH_S", 0.4)
    seen: list[int] = []
    found = calibrate.calibrate_client(1, (2, 8), 25.0, lambda step: seen.append(step.streams))
    assert seen == [one.streams for one in found.steps]
    assert seen[0] == 2
    first = found.steps[0]
    # Wide margins: the machine that runs this may be busy.
    assert abs(first.rate_error_pct) < 20
    assert abs(first.ttft_mean_error_ms) < 50
    assert first.got_tok_per_s > 0
