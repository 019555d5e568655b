"""The entry point: help, versions, unknown commands, exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from concbench import __version__
from concbench.cli.main import COMMANDS, command_parser, main


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


def test_nothing_at_all_is_a_usage_error() -> None:
    assert main([]) == 2


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["brust"]) == 2
    assert "`burst`" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "reference"])
def test_every_command_explains_itself(name: str) -> None:
    parser = command_parser(name)
    assert parser.description
    text = parser.format_help()
    assert "usage: concbench" in text


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "reference"])
def test_help_of_every_command_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    said = capsys.readouterr()
    assert said.out.count("usage: ") == 1
    assert said.err == ""


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from concbench.cli.main import main; main(['--help']); "
        "heavy = {'numpy', 'duckdb', 'scipy', 'rich', 'uvloop', 'msgspec'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    command = [sys.executable, "-m", "concbench", "report", "--definitions"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.wait(60) == 0
        assert child.stderr.read() == b""


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["lanes", "diff", "a", "--plan", "x.toml", "b"], ["a", "b"]),
        (["lanes", "lint", "--plan", "x.toml", "a"], ["a"]),
    ],
)
def test_options_may_stand_between_names(words: list[str], names: list[str]) -> None:
    assert command_parser(words[0]).parse_args(words[1:]).names == names
