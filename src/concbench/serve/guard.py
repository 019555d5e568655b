"""A tiny program that ends an engine when the tool is gone, even by kill -9.

It is started before the engine (`python -I -S guard.py MARK PARENT`), holds a pipe from the tool
and reads lines from it: `group N` (the engine's session), `stop [argv]` (JSON, a command that stops
a container), `done` (all is over: exit quietly). When the pipe closes or the parent dies first, it
ends every process of that session and every process that carries MARK in its environment: the mark
is there from the engine's first instruction, so nothing depends on `group` having arrived.

Standard library only: it starts without site-packages, in milliseconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from pathlib import Path

MARK_VARIABLE = "CONCBENCH_LANE_MARK"
GRACE_S = 5.0
_STEP_S = 0.05
_FORK_WINDOW_STEPS = 10


def main() -> int:
    """Run as a program; see the module."""
    mark, parent = sys.argv[1], int(sys.argv[2])
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    os.write(1, b"ready\n")
    told = _listen(parent)
    if told is None:
        return 0
    group, commands = told
    _say(f"the tool is gone: ending what it started (session {group or 'not told'})")
    for command in commands:
        _run(command)
    _end(mark.encode(), group)
    # A client that was just creating the container is gone only now: what it made is, too.
    for command in commands:
        _run(command)
    return 0


def _listen(parent: int) -> tuple[int, list[list[str]]] | None:
    """Return session and stop commands once the tool is gone, or None when told `done`."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    # The pipe alone would not do: a forked worker of the tool may hold its other end.
    try:
        poll.register(os.pidfd_open(parent), select.POLLIN)
        wait_ms = None
    except (AttributeError, OSError):
        wait_ms = 1000
    group, commands, rest = 0, list[list[str]](), b""
    while True:
        ready = {fd for fd, _ in poll.poll(wait_ms)}
        closed = False
        if 0 in ready:
            got = os.read(0, 1 << 16)
            closed = not got
            *lines, rest = (rest + got).split(b"\n")
            for line in lines:
                word, _, value = line.partition(b" ")
                if word == b"done":
                    return None
                if word == b"group":
                    group = int(value)
                elif word == b"stop":
                    commands.append(json.loads(value))
        elif ready or os.getppid() != parent:
            closed = True
        if closed:
            return group, commands


def _end(mark: bytes, group: int) -> None:
    """SIGTERM, then after GRACE_S SIGKILL, until nothing is left of session and mark."""
    quiet = 0
    steps = int(GRACE_S / _STEP_S)
    signalled: set[int] = set()
    for step in range(2 * steps):
        pids = _members(mark, group)
        for pid in pids:
            if step >= steps or pid not in signalled:
                _kill(pid, signal.SIGKILL if step >= steps else signal.SIGTERM)
                signalled.add(pid)
        # A child that was being forked as the tool died carries the mark only after its exec.
        quiet = 0 if pids else quiet + 1
        if quiet >= (1 if group else _FORK_WINDOW_STEPS):
            break
        select.select([], [], [], _STEP_S)
    left = _members(mark, group)
    _say(f"left over: {left}" if left else "nothing is left")


def _members(mark: bytes, group: int) -> list[int]:
    """Return the living processes of the session or with the mark."""
    needle = MARK_VARIABLE.encode() + b"=" + mark
    if not Path("/proc/self/environ").exists():
        return [group] if group and _alive(group) else []
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            pid = int(entry.name)
            mine = (group and os.getsid(pid) == group) or needle in (
                (entry / "environ").read_bytes().split(b"\0")
            )
            if mine and _has_life((entry / "stat").read_bytes()):
                found.append(pid)
        except OSError:
            continue
    return found


def _has_life(stat: bytes) -> bool:
    """Return whether any thread still runs: those of a zombie can hold ports and memory."""
    fields = stat.rpartition(b") ")[2].split()
    return fields[0] != b"Z" or int(fields[17]) > 1


def _alive(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except OSError:
        return False
    return True


def _kill(pid: int, number: int) -> None:
    try:
        if Path("/proc/self/environ").exists():
            os.kill(pid, number)
        else:
            os.killpg(pid, number)
    except OSError:
        pass


def _run(command: list[str]) -> None:
    # Imported late: most guards never need it, and the start must be quick.
    import subprocess

    try:
        subprocess.run(
            command,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _say(f"{command[0]}: {error}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"concbench guard: {text}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
