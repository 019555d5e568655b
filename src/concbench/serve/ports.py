"""TCP ports: find a free one, and name the program that holds one."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import psutil

from concbench.errors import PortTaken

LOOPBACK = "127.0.0.1"


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
    try:
        connections = psutil.net_connections("tcp")
    except psutil.Error:
        return []
    pids = {
        one.pid
        for one in connections
        if one.status == psutil.CONN_LISTEN and one.laddr and one.laddr.port == port and one.pid
    }
    return [Holder(pid, _program(pid)) for pid in sorted(pids)]


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
