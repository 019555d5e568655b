"""Each command in README and documentation is run, or at the least read by the real parser.

In a fenced block of shell a command stands at the beginning of a line, in a console block after
`$ `. What a test cannot have (an engine of one's own, an hour) is listed by name with the reason;
it still has to parse. Commands in running text are checked for their name and options.
"""

from __future__ import annotations

import re
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from concbench.cli.main import COMMANDS, command_parser, main
from concbench.errors import UsageError
from concbench.reference.main import options_parser
from tests.cli.studies import alone, interleaved
from tests.servers import reference_server

ROOT = Path(__file__).parents[2]
SHELL = ("", "sh", "bash", "console")

PARSED_ONLY = {
    "try": "minutes with a real engine: tests/system/test_embedded_lane.py runs that lane",
    "burst embedded": "minutes with a real engine: tests/system/test_embedded_lane.py",
    "lanes": "needs engines of one's own: tests/cli/test_lanes.py and tests/system/test_lanes.py",
    "ab": "starts two engines: tests/cli has its tests",
    "sweep": "a night of engines: tests/cli has its tests",
    "find": "searches for minutes: tests/cli has its tests",
    "spec": "starts an engine twice: tests/cli has its tests",
    "link": "needs a second machine: tests/cli has its tests",
}
"""First words of a command -> why it is not run here."""

PARSED_ONLY_WITH = {
    "--baseline": "needs a baseline that was saved before: tests/cli/test_compare.py",
    "--workers": "needs a Ray cluster: tests/system/test_ray.py",
}
"""Options with which a command is not run here -> why."""

MOST_STREAMS = 64
TOO_MANY = "thousands of streams: bench has them"
"""Why a command with more than `MOST_STREAMS` at once is not run here."""

SERVERS = ("watch", "reference")
"""They serve until they are told to stop: started, seen to answer, stopped."""

SHORTER = {
    "burst": ["--rounds", "1", "--warmup", "1", "--output-tokens", "16"],
    "sustain": ["--max-s", "2", "--min-s", "1", "--output-tokens", "16"],
    "rate": ["--seed", "1", "--duration", "2s", "--rounds", "1", "--output-tokens", "16"],
}
"""Added to what is documented, so that it ends soon: the last of two options counts."""

FAIR_EXITS = (0, 4, 5)
"""Measured, doubted (a busy machine is a doubt), or a gate that did its work."""


class Documented(NamedTuple):
    """A command, its words without the program's name, and where it stands."""

    where: str
    words: list[str]

    def __str__(self) -> str:
        return f"{self.where} {' '.join(self.words)}"


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fences(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield line number, language and lines of each fenced block."""
    language: str | None = None
    block: list[str] = []
    begin = 0
    for number, line in enumerate(text.splitlines(), 1):
        mark = re.match(r"\s*```+\s*([\w-]*)", line)
        if mark is None:
            block.append(line.strip())
        elif language is None:
            language, block, begin = mark[1], [], number
        else:
            yield begin, language, block
            language = None


def commands_of(text: str, where: str) -> list[Documented]:
    """Return the commands in the fenced blocks of a page, continued lines joined."""
    found = []
    for number, language, block in fences(text):
        if language not in SHELL:
            continue
        joined = "\n".join(block).replace("\\\n", " ").splitlines()
        for line in joined:
            said = line.removeprefix("$ ") if language == "console" else line
            if language == "console" and said == line:
                continue  # what the program said
            for part in re.split(r"\s(?:&&|\|)\s", said):
                if re.match(r"\s*(\w+=\S* )*(\S*/)?concbench\s", part):
                    words = shlex.split(part, comments=True)
                    name = next(k for k, word in enumerate(words) if "=" not in word)
                    found.append(Documented(f"{where}:{number}", words[name + 1 :]))
    return found


def documented() -> list[Documented]:
    """Return every command of every page, each once a page."""
    found: dict[str, Documented] = {}
    for path in pages():
        name = str(path.relative_to(ROOT))
        for one in commands_of(path.read_text(encoding="utf-8"), name):
            found.setdefault(f"{name} {' '.join(one.words)}", one)
    return list(found.values())


def inline(text: str) -> list[list[str]]:
    """Return the words of each command in running text."""
    prose = re.sub(r"(?ms)^\s*```.*?^\s*```", "", text)
    spans = re.findall(r"`(concbench\s[^`]+)`", prose)
    return [re.sub(r"\s+", " ", span).split(" ")[1:] for span in spans]


def read(words: list[str]) -> None:
    """Parse as the program does. Raises UsageError."""
    if words[0] in ("-h", "--help", "--version"):
        return
    if words[0] not in COMMANDS:
        raise UsageError(f"no such command: {words[0]}")
    if words[0] == "reference":
        try:
            options_parser().parse_args(words[1:])
        except SystemExit as error:
            raise UsageError("reference: its options") from error
        return
    command_parser(words[0]).parse_args(words[1:])


def reason_not_to_run(words: list[str]) -> str | None:
    """Return why a command is not run, None where it is."""
    for length in (2, 1):
        if reason := PARSED_ONLY.get(" ".join(words[:length])):
            return reason
    with_option = next((PARSED_ONLY_WITH[word] for word in words if word in PARSED_ONLY_WITH), None)
    return with_option or (TOO_MANY if most_streams(words) > MOST_STREAMS else None)


def most_streams(words: list[str]) -> int:
    """Return the largest number of streams that a command names."""
    named = ("--levels", "-c", "--concurrency", "--streams")
    lists = [after for word, after in pairwise(words) if word in named]
    return max((int(n) for text in lists for n in text.split(",") if n.isdigit()), default=0)


def options_of(name: str) -> set[str]:
    made = options_parser() if name == "reference" else command_parser(name)
    parsers = [made]
    for action in made._actions:
        choices = action.choices
        parsers += [*choices.values()] if isinstance(choices, dict) else []
    return {
        option for each in parsers for action in each._actions for option in action.option_strings
    }


ALL = documented()
ONCE = list({tuple(one.words): one for one in reversed(ALL)}.values())
"""Commands that several pages have are run once."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with reference_server("--ttft-ms", "5", "--itl-ms", "1") as url:
        yield url


@pytest.fixture
def place(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like that of a reader: a plan, studies, the examples, a trace, a baseline."""
    interleaved(tmp_path / "studies" / "one", {"a": {1: 50, 4: 150}, "b": {1: 60, 4: 190}})
    alone(tmp_path / "studies" / "before", "a", [100.0, 101.0, 100.5, 100.2])
    alone(tmp_path / "studies" / "after", "a", [120.0, 121.0, 120.5, 120.2])
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "plan.toml").write_text(f'[lanes.gguf]\nengine = "vllm"\nurl = "{server}"\n')
    (tmp_path / "arrivals.txt").write_text("0\n0.1\n0.3\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found: int = listening.getsockname()[1]
    return found


def placed(words: list[str], server: str) -> list[str]:
    """Put what is there in place of what stands for the reader's own."""
    made: list[str] = []
    for word in words:
        if made and made[-1] == "--out":
            word = "studies/new"
        if made and made[-1] == "--port":
            word = "0" if words[0] == "reference" else str(free_port())
        if made and made[-1] == "--model":
            word = "reference"
        word = re.sub(r"https?://[\w.-]+(:\d+)?", server, word)
        word = re.sub(r"^studies/\d{8}T\d{6}Z-\w+$", "studies/one", word)
        made.append({"studies/…": "studies/one", "STUDY": "studies/one"}.get(word, word))
    return [*made, *SHORTER.get(words[0], [])]


@pytest.mark.parametrize("one", ALL, ids=str)
def test_a_documented_command_can_be_read(one: Documented) -> None:
    read(one.words)


@pytest.mark.parametrize(
    "one",
    [x for x in ONCE if reason_not_to_run(x.words) is None and x.words[0] not in SERVERS],
    ids=str,
)
def test_a_documented_command_does_its_work(one: Documented, server: str, place: Path) -> None:
    code = main(placed(one.words, server))
    assert code in FAIR_EXITS, f"{one}: exit code {code}"


@pytest.mark.parametrize("one", [x for x in ONCE if x.words[0] in SERVERS], ids=str)
def test_a_documented_server_answers_and_stops(one: Documented, server: str, place: Path) -> None:
    words = [sys.executable, "-m", "concbench", *placed(one.words, server)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert b"http://" in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_running_text_exist_with_their_options(path: Path) -> None:
    for words in inline(path.read_text(encoding="utf-8")):
        name = words[0]
        if name.startswith("-") or name == "COMMAND":
            continue
        assert name in COMMANDS, f"`concbench {' '.join(words)}`"
        wanted = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert wanted <= options_of(name) | {"--help"}, f"`concbench {' '.join(words)}`"


def test_commands_are_found() -> None:
    text = "\n".join([
        "```sh", "concbench burst http://a --levels \\", "  1,2   # two", "make try", "```",
        "```console", "$ concbench report x", "concbench said this", "```",
        "```toml", "concbench = 1", "```",
        "```", "cd x && .venv/bin/concbench try", "A=1 B=2/3 concbench doctor", "```",
    ])  # fmt: skip
    assert [one.words for one in commands_of(text, "page")] == [
        ["burst", "http://a", "--levels", "1,2"],
        ["report", "x"],
        ["try"],
        ["doctor"],
    ]
    assert inline("one `concbench report STUDY\n--html FILE` two") == [
        ["report", "STUDY", "--html", "FILE"]
    ]
    assert {one.words[0] for one in ALL} >= {"try", "burst", "report", "compare", "watch"}


@pytest.mark.parametrize(
    "line",
    [
        "burst http://localhost:8000 --lebels 1",
        "brust http://localhost:8000",
        "report --pdf x",
        "sustain http://localhost:8000",
        "reference --no-such-option",
    ],
)
def test_a_documented_option_that_does_not_exist_is_found(line: str) -> None:
    with pytest.raises(UsageError):
        read(line.split())


def test_what_is_not_run_says_why() -> None:
    reasons = [*PARSED_ONLY.values(), *PARSED_ONLY_WITH.values(), TOO_MANY]
    assert all(len(reason) > 20 for reason in reasons)
    assert reason_not_to_run(["burst", "x", "--levels", "1,4096"]) == TOO_MANY
    assert reason_not_to_run(["burst", "x", "--levels", "1,64"]) is None
    skipped = [one for one in ALL if reason_not_to_run(one.words)]
    assert 0 < len(skipped) < len(ALL) / 2 + 1


def test_the_plan_that_a_guide_prints_is_the_example_that_it_names() -> None:
    page = (ROOT / "docs" / "guides" / "matrix-overnight.md").read_text(encoding="utf-8")
    assert "This is `examples/overnight.toml`." in page
    printed = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert printed is not None
    example = (ROOT / "examples" / "overnight.toml").read_text(encoding="utf-8")
    assert tomllib.loads(printed[1]) == tomllib.loads(example)
