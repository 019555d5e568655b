"""Each command once against a server that misbehaves: no traceback, no hang, a code we promise.

`python -m tests.system.chaos` does so for as long as wanted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from concbench.cli.main import COMMANDS
from tests.system.chaos import NOT_HERE, known, one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all: the study that a burst left is read by every command that reads one."""
    return tmp_path_factory.mktemp("chaos")


def test_every_command_is_run_or_has_a_reason() -> None:
    assert {*known(), *NOT_HERE} == COMMANDS.keys()
    assert not set(known()) & NOT_HERE.keys()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", known())
def test_a_server_that_misbehaves_at_random(command: str, folder: Path) -> None:
    done = one(command, seed=3, folder=folder)
    assert done.wrong() is None, done.said[-3000:]
