"""What every case needs: a way to run a command and look at what it left."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from tests.cases.play import Bench


@pytest.fixture
def bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Bench:
    # Each load begins with a full collection; in a test process that is a fifth of all the time.
    monkeypatch.setattr(gc, "collect", lambda *_: 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Bench(tmp_path, capsys)
