"""Links of a plan: their own commands, shown and confirmed once, run before and taken back after.

A link is a label. Where it has commands (`before`, `after`), they change this machine's network,
so they never run unasked.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from concbench.errors import UsageError
from concbench.plan.model import LinkPlan

COMMAND_TIMEOUT_S = 60.0

Ask = Callable[[str], bool]
"""Shows the text, which lists the commands, and returns whether they may run."""

Say = Callable[[str], None]


class Links:
    """Applies links; each link's commands are confirmed once, however often it is applied.

    `yes`: they may run without being asked about; they are shown all the same, through `say`.
    """

    def __init__(self, *, yes: bool, ask: Ask, say: Say = lambda text: None) -> None:
        self._yes, self._ask, self._say = yes, ask, say
        self._confirmed: set[str] = set()

    def confirm(self, links: Sequence[LinkPlan]) -> None:
        """Show the commands of all links and ask once. Raises UsageError where they may not run."""
        new = [each for each in links if _key(each) not in self._confirmed and _commands(each)]
        if not new:
            return
        text = "\n".join(line for each in new for line in command_lines(each))
        if self._yes:
            self._say(text)
        elif not self._ask(text):
            names = ", ".join(each.name for each in new)
            raise UsageError(
                f"the commands of link {names} were not confirmed, and nothing was run: "
                "confirm them, or give --yes"
            )
        self._confirmed.update(map(_key, new))

    @contextmanager
    def apply(self, link: LinkPlan) -> Iterator[None]:
        """Run the link's `before` commands, and at the end of the block those of `after`.

        `after` runs however the block ends, also where a `before` failed half-way. Raises
        UsageError where a command fails or may not run.
        """
        self.confirm([link])
        try:
            for argv in link.before:
                run_command(link.name, argv)
            yield
        except BaseException as error:
            for why in _undo(link):
                error.add_note(why)
            raise
        failures = _undo(link)
        if failures:
            raise UsageError("; ".join(failures))


def apply(
    link: LinkPlan,
    yes: bool,  # noqa: FBT001
    ask: Ask,
    say: Say = lambda text: None,
) -> AbstractContextManager[None]:
    """Return a block in which the link is up; see `Links.apply`."""
    return Links(yes=yes, ask=ask, say=say).apply(link)


def command_lines(link: LinkPlan) -> list[str]:
    """Return the link's commands as they would be typed, under its name."""
    return [
        f"link {link.name}:",
        *(f"  before  {shlex.join(argv)}" for argv in link.before),
        *(f"  after   {shlex.join(argv)}" for argv in link.after),
    ]


def run_command(name: str, argv: Sequence[str]) -> None:
    """Run one command, without a shell and without input. Raises UsageError where it fails."""
    shown = f"link {name}: `{shlex.join(argv)}`"
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UsageError(f"{shown} did not end within {COMMAND_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise UsageError(f"{shown} cannot be run: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
        why = f": {said[-1]}" if said else ""
        raise UsageError(f"{shown} ended with {done.returncode}{why}")


def _undo(link: LinkPlan) -> list[str]:
    """Run every `after` command, and return what went wrong."""
    failures = []
    for argv in link.after:
        try:
            run_command(link.name, argv)
        except UsageError as error:
            failures.append(str(error))
    return failures


def _commands(link: LinkPlan) -> list[list[str]]:
    return [*link.before, *link.after]


def _key(link: LinkPlan) -> str:
    return "\n".join(command_lines(link))
