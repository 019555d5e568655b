"""TCP ports: find a free one, and name the program that holds one."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from concbench.errors import PortTaken

LOOPBACK = "127.0.0.1"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN = "0A"


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that listens on a port."""

    pid: int
    program: str


def free_port(host: str = LOOPBACK) -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Return whether a server could listen on the port now; lingering connections do not count."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            # Two sockets may share a port until one of them listens.
            probe.listen(1)
        except OSError:
            return False
    return True


def holders(port: int) -> list[Holder]:
    """Return the processes that listen on the port, as far as this user may see them."""
    pids = _listening_linux(port) if _TABLES[0].exists() else _listening_anywhere(port)
    return [Holder(pid, _program(pid)) for pid in sorted(pids)]


def _listening_linux(port: int) -> set[int]:
    """Return the pids from the kernel's tables.

    psutil decodes every row first, which takes a second where a load has just left tens of
    thousands of closed connections behind.
    """
    ending = f":{port:04X}"
    inodes: set[str] = set()
    for table in _TABLES:
        with suppress(OSError), table.open(encoding="ascii") as rows:
            for row in rows:
                fields = row.split(maxsplit=10)
                if len(fields) > 9 and fields[3] == _LISTEN and fields[1].endswith(ending):
                    inodes.add(f"socket:[{fields[9]}]")
    if not inodes:
        return set()
    return {
        int(process.name)
        for process in Path("/proc").iterdir()
        if process.name.isdigit() and _holds(process / "fd", inodes)
    }


def _holds(files: Path, wanted: set[str]) -> bool:
    """Whether one of a process's open files is one of those wanted."""
    try:
        for file in files.iterdir():
            with suppress(FileNotFoundError):
                if str(file.readlink()) in wanted:
                    return True
    except OSError:
        return False
    return False


def _listening_anywhere(port: int) -> set[int]:
    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:
        return set()
    return {
        one.pid
        for one in connections
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid
    }


def require_free(port: int, host: str = LOOPBACK) -> None:
    """Raise PortTaken, naming who holds the port where that can be seen."""
    if is_free(port, host):
        return
    raise PortTaken(
        f"port {port} is taken by {describe(holders(port))}: stop it, or choose another port"
    )


def describe(found: list[Holder]) -> str:
    """Return the holders in words."""
    if not found:
        return "a program of another user"
    return ", ".join(f"{holder.program} (pid {holder.pid})" for holder in found)


def _program(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return " ".join(process.cmdline()[:4])[:80] or process.name()
    except psutil.Error:
        return "a program"
