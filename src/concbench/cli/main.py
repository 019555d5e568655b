"""The entry: finds the command, imports only its module, and turns errors into exit codes."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, HelpFormatter
from importlib import import_module
from typing import NoReturn

from concbench import __version__
from concbench.errors import ConcbenchError, UsageError
from concbench.store.interrupts import interrupts

COMMANDS: dict[str, tuple[str, str]] = {
    "try": ("try_", "burst on the embedded engine: the main job in one word"),
    "burst": ("burst", "N requests at once for each level, rounds repeated"),
    "sustain": ("sustain", "a closed loop with N in flight until the steady rate is known"),
    "rate": ("rate", "requests by a schedule: constant, Poisson or a trace"),
    "ab": ("ab", "two lanes measured in turns until every level has a verdict"),
    "spec": ("spec", "speculation on against off, by concurrency and content"),
    "sweep": ("sweep", "the matrix of a plan: lanes, links, contexts, concurrencies; resumable"),
    "lanes": ("lanes", "the plan's lanes: list, show, up, down, lint, diff, swap"),
    "link": ("link", "the link itself: throughput, small-message and collective latency"),
    "doctor": ("doctor", "what would spoil a result here; calibrates the client"),
    "compare": ("compare", "verdicts and crossovers from what is stored; a gate for CI"),
    "capacity": ("capacity", "users this box carries, from what is stored"),
    "find": ("find", "the largest rate or number of users that holds objectives"),
    "retract": ("retract", "withdraw a round that was wrong; it stays on the record"),
    "amend": ("amend", "record that a newer study supersedes an older one"),
    "import": ("import_", "read results of other tools into a study"),
    "report": ("report", "show a stored study: terminal, page, Markdown, CSV, JSON"),
    "query": ("query", "SQL on a study; its tables as CSV or Parquet"),
    "watch": ("watch", "a local page that follows a running study"),
    "reference": ("reference", "run the known-truth server"),
}
"""Command -> (module of `concbench.cli`, one line)."""


class Parser(ArgumentParser):
    """argparse with one-line errors and exit code 2 through the error tree."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of printing the usage."""
        raise UsageError(f"{self.prog}: {message} (see `{self.prog} --help`)")


def overview() -> str:
    """Return the text of `concbench --help`."""
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            f"concbench {__version__}: benchmarks LLM serving engines under concurrency",
            "",
            "usage: concbench COMMAND [options]        concbench COMMAND --help",
            "",
            *lines,
            "",
            "A TARGET is a base URL (http://host:port, with or without /v1), a lane's name from",
            "the plan file (--plan, ./plan.toml or ./concbench.toml), or `embedded`.",
            "Exit: 0 measured · 2 usage · 3 target · 4 fatal doubt · 5 gate · 130 interrupted",
        ]
    )


def command_parser(name: str) -> Parser:
    """Return the parser of one command, its options added by the command's module."""
    module = import_module(f"concbench.cli.{COMMANDS[name][0]}")
    parser = Parser(
        prog=f"concbench {name}",
        description=module.__doc__,
        formatter_class=lambda prog: HelpFormatter(prog, max_help_position=32, width=100),
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    parser.set_defaults(run=module.run, argv=[])
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run a command; return the exit code of the contract."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else 2
    if words[0] in ("-V", "--version", "version"):
        print(f"concbench {__version__}")
        return 0
    try:
        return _dispatch(words)
    except ConcbenchError as error:
        print(f"concbench: {_one_line(error)}", file=sys.stderr)
        # The last lines of an engine's log, where one did not start.
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("concbench: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except SystemExit as end:
        # Rich ends the process with 1 where nobody reads any more, which is no failure.
        if isinstance(end.__context__, BrokenPipeError):
            return 0
        raise


def _dispatch(words: list[str]) -> int:
    if words[0] not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(words[0], COMMANDS, 1)
        hint = f", did you mean `{near[0]}`?" if near else " (see `concbench --help`)"
        raise UsageError(f"no such command: {words[0]}{hint}")
    if words[0] == "reference":
        # Its options are its own, and it starts as a child process: no common parser in between.
        return int(import_module("concbench.reference.main").run(words[1:]))
    parsed = command_parser(words[0]).parse_args(words[1:])
    parsed.argv = words
    with interrupts():
        return int(parsed.run(parsed))


def _one_line(error: ConcbenchError) -> str:
    return " ".join(str(error).split())
