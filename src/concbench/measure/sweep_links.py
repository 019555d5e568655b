"""Changing over between links by the plan's own commands, which were confirmed before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from concbench.errors import NotReady, UsageError
from concbench.measure.links import run_command
from concbench.plan.model import LinkPlan


class CommandLinks:
    """Runs `before` when a link is taken and `after` when it is left.

    `measure` is given a link that has just come up and names a host: once, however often it is
    taken.
    """

    def __init__(
        self,
        links: Mapping[str, LinkPlan],
        say: Callable[[str], None],
        measure: Callable[[LinkPlan], None] = lambda link: None,
    ) -> None:
        self._links = links
        self._say = say
        self._measure = measure
        self._measured: set[str] = set()
        self._current: str | None = None

    def use(self, name: str | None) -> None:
        """Change over to a link; None is the network as it is. Raises NotReady, with the reason."""
        if name == self._current:
            return
        self.close()
        if name is not None:
            self._current = name
            link = self._links[name]
            self._run(name, link.before)
            if link.host is not None and name not in self._measured:
                self._measured.add(name)
                self._measure(link)

    def close(self) -> None:
        """Leave the link that was taken, if any."""
        name, self._current = self._current, None
        if name is not None:
            self._run(name, self._links[name].after)

    def _run(self, name: str, commands: Iterable[Sequence[str]]) -> None:
        for command in commands:
            shown = " ".join(command)
            self._say(f"link {name}: {shown}")
            try:
                run_command(name, command)
            except UsageError as error:
                raise NotReady(f"{error}; mend it and start the same command again") from None


def commands_of(links: Iterable[LinkPlan]) -> list[str]:
    """Return the commands that these links would run, as they are to be shown."""
    return [
        f"link {link.name}, {when}: {' '.join(command)}"
        for link in links
        for when, commands in (("before", link.before), ("after", link.after))
        for command in commands
    ]
