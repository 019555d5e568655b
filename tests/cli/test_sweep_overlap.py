"""The overlap that a sweep tells, on servers of which it is known: all at once, and one by one."""

from __future__ import annotations

import sys

import pytest

from tests.cli.test_sweep import lane, sweep, write


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


def server(slots: int, ttft_ms: int, itl_ms: int) -> list[str]:
    """A server of known pace; long steps leave a busy machine a quarter of a second to be late."""
    words = ["--port", "{port}", "--slots", str(slots)]
    words += ["--ttft-ms", str(ttft_ms), "--itl-ms", str(itl_ms)]
    return [sys.executable, "-m", "concbench", "reference", *words]


def test_overlap_is_near_1_with_slots_enough_and_0_with_one(capsys):
    wide = lane("wide", server(8, 100, 300))
    narrow = lane("narrow", server(1, 50, 100))
    write(wide, narrow, concurrency=(1, 8), rounds=3)
    result = sweep(capsys, "--together", "no")
    overlap = {cell["cell"]: cell["overlap"] for cell in result["cells"]}
    assert overlap["wide.short.c1"] is None
    assert 0.9 <= overlap["wide.short.c8"] <= 1.05
    assert overlap["narrow.short.c8"] == pytest.approx(0, abs=0.05)
    shown = {row["cell"]: row["overlap"] for row in result["payload"]["matrix"]["concurrency"]}
    assert shown == overlap
    scaling = {row["cell"]: row["scaling"] for row in result["payload"]["matrix"]["concurrency"]}
    assert scaling["wide.short.c8"] > 7
    assert scaling["narrow.short.c8"] == pytest.approx(1, abs=0.3)
