"""The reference server, which dies when too many requests are there at once.

    python mortal_engine.py AT TIMES FILE LAST_WORDS reference-options…

It dies with its last words when the AT-th request comes, at most TIMES times: each death is a line
in FILE. AT 0 dies while starting.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from concbench.reference import main
from concbench.reference.server import Server


def die(file: Path, times: int, words: str) -> None:
    deaths = file.read_text().splitlines() if file.exists() else []
    if len(deaths) >= times:
        return
    file.write_text("\n".join([*deaths, words]) + "\n")
    sys.stdout.write(words + "\n")
    sys.stdout.flush()
    os._exit(1)


def run(argv: list[str]) -> int:
    at, times, file, words, *rest = argv
    if at == "0":
        die(Path(file), int(times), words)
    generate = Server._generate

    def mortal(self: Server, *given: Any, **named: Any) -> None:
        scheduler = self.state.scheduler
        if len(scheduler.running) + len(scheduler.waiting) + 1 >= int(at):
            die(Path(file), int(times), words)
        generate(self, *given, **named)

    if at != "0":
        Server._generate = mortal
    return main.run(rest)


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
