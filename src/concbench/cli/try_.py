"""The main job in one word: bursts of 1, 2, 4 and 8 on the embedded llama.cpp, two rounds each."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from concbench.cli import burst, options

OUTPUT_TOK = 120
"""About 100 steps in the steady window: 1 % at its edges, and the whole run within 3 minutes."""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `try`: only where the results go."""
    options.add_output(parser)


def run(args: Namespace) -> int:
    """Run `burst embedded` with settings that finish quickly."""
    return burst.run(defaults(args))


def defaults(args: Namespace) -> Namespace:
    """Return the options of the burst that `try` stands for, with the output options given."""
    from concbench.cli.main import command_parser

    words = ["embedded", "--rounds", "2", "--output-tokens", str(OUTPUT_TOK)]
    full = command_parser("burst").parse_args(words)
    for name in ("out", "json", "html", "quiet", "private"):
        setattr(full, name, getattr(args, name))
    full.argv = args.argv
    return full
