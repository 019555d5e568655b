"""A local page that follows a running study, and shows any stored one."""

from __future__ import annotations

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from concbench.cli import options
from concbench.errors import ConcbenchError, StudyUnreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from concbench.cli.following import Follower
    from concbench.report.follow_server import Answer, FollowServer

NICE = 10
"""The page must not take the processor from what it follows."""

JSON, HTML = "application/json", "text/html; charset=utf-8"


def port(text: str) -> int:
    """Parse a port."""
    value = int(text) if text.isdigit() else 0
    if not 1 <= value <= 65535:
        raise ValueError(f"{text!r} is not a port from 1 to 65535")
    return value


def add_arguments(parser: ArgumentParser) -> None:
    """Add the options of `watch`."""
    parser.add_argument(
        "study",
        type=Path,
        metavar="STUDY",
        help="study folder, or a folder of studies to choose from",
    )
    parser.add_argument(
        "--port",
        type=options.checked(port),
        default=0,
        metavar="N",
        help="port of 127.0.0.1 (default a free one)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def run(args: Namespace) -> int:
    """Serve the page until Ctrl-C or SIGTERM; return 0."""
    from concbench.report.follow_server import FollowServer

    studies = Studies(args.study)
    server = FollowServer(studies.answer, args.port)
    os.nice(NICE)
    try:
        # Before anybody is told the address: who knows it may end it at once.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: server.stop())
        _say(server, args)
        server.serve()
    finally:
        studies.close()
    return 0


def _say(server: FollowServer, args: Namespace) -> None:
    print(server.url, flush=True)
    print("only this machine can open it; Ctrl-C ends it", file=sys.stderr)
    if args.open:
        import webbrowser

        webbrowser.open(server.url)


class Studies:
    """One study, or all of a folder. Raises StudyUnreadable where there is none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = folder.resolve().name
        self._followers: dict[str, Follower] = {}
        self._single = (folder / "study.json").exists() or not folder.is_dir()
        if self._single:
            self._follower(self._name, folder)
        elif not self.names():
            raise StudyUnreadable(f"there is no study in {folder}")

    def names(self) -> list[str]:
        """Return the studies to choose from, newest first; none where it is one alone."""
        if self._single:
            return []
        try:
            found = [path.parent.name for path in self._folder.glob("*/study.json")]
        except OSError:
            return []
        return sorted((name for name in found if _is_text(name)), reverse=True)

    def answer(self, path: str, query: Mapping[str, str]) -> Answer | None:
        """Return the page, the state or the report. What a study cannot give is a 409 with why."""
        from concbench.report.follow_server import TEXT, Answer
        from concbench.report.following import page, page_policy

        if path == "":
            return Answer(page().encode(), HTML, policy=page_policy())
        if path not in ("state.json", "report.html"):
            return None
        try:
            return self._of_study(path, query.get("study"))
        except ConcbenchError as error:
            text = f"{' '.join(str(error).split())}\n".encode("utf-8", "replace")
            return Answer(text, TEXT, status=409)

    def _of_study(self, path: str, wanted: str | None) -> Answer | None:
        import hashlib

        import msgspec

        from concbench.report.follow_server import Answer

        follower = self._chosen(wanted)
        if follower is None:
            # Nothing is chosen yet: the names alone.
            chooses = path == "state.json" and wanted is None
            body = msgspec.json.encode({"studies": self.names()})
            return Answer(body, JSON) if chooses else None
        if path == "report.html":
            made = follower.report()
            # The page carries a policy of its own that names its scripts.
            return None if made is None else Answer(made, HTML, policy="frame-ancestors 'none'")
        state = follower.state(self.names())
        still = msgspec.structs.replace(state, now_utc="")
        tag = hashlib.sha256(msgspec.json.encode(still)).hexdigest()[:32]
        return Answer(msgspec.json.encode(state), JSON, tag=f'"{tag}"')

    def _chosen(self, wanted: str | None) -> Follower | None:
        if self._single:
            return self._follower(self._name, self._folder)
        # Only a listed name: nothing in a query can lead out of the folder.
        if wanted is None or wanted not in self.names():
            return None
        return self._follower(wanted, self._folder / wanted)

    def _follower(self, name: str, folder: Path) -> Follower:
        from concbench.cli.following import Follower

        known = self._followers.get(name)
        if known is None:
            known = Follower(folder)
            # Two requests at once: the first to arrive here stays.
            kept = self._followers.setdefault(name, known)
            if kept is not known:
                known.close()
            known = kept
        return known

    def close(self) -> None:
        """End what runs for the studies."""
        for follower in self._followers.values():
            follower.close()


def _is_text(name: str) -> bool:
    """Whether a file's name can be put into an address: one of arbitrary bytes cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
