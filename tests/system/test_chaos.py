"""Each command once against a server that misbehaves: no traceback, no hang, a code we promise.

`python -m tests.system.chaos` does so for as long as wanted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.chaos import known, one


@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", known())
def test_a_server_that_misbehaves_at_random(command: str, tmp_path: Path) -> None:
    done = one(command, seed=3, folder=tmp_path)
    assert done.wrong() is None, done.said[-3000:]
