"""Latency of an all-reduce between two machines, through torch.distributed where torch is there.

Run as a program in a process of its own (`python -m concbench.measure.collective RANK HOST PORT
BACKEND BYTES COUNT`): rank 1 on the serving side, which is also where the two meet, rank 0 here.
Rank 0 prints its times as a JSON array of nanoseconds.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import socket
import struct
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

from concbench.clock import now_ns
from concbench.errors import MissingExtra, TargetError

PORT = 5203
WARMUP = 10
_SIOCGIFADDR = 0x8915
Backend = Literal["gloo", "nccl"]


def require_torch(python: Path | None = None) -> None:
    """Raise MissingExtra where torch, or what else a rank needs, cannot be imported.

    `python` is another interpreter that has torch, such as that of an engine's own environment.
    """
    if python is None:
        if importlib.util.find_spec("torch") is None:
            raise MissingExtra(
                "torch is not installed here, and carries the collective operation: name a Python "
                "that has it with --torch-python on both machines, or leave out --collective"
            )
        return
    why = _trial(python)
    if why is not None:
        raise MissingExtra(
            f"--torch-python {python} cannot run the collective operation ({why}): it needs torch "
            "and msgspec"
        )


def _trial(python: Path) -> str | None:
    """Return why an interpreter cannot be a rank, None where it can."""
    trial = [str(python), "-c", "import torch.distributed, concbench.measure.collective"]
    try:
        done = subprocess.run(trial, capture_output=True, check=False, env=environment(python))
    except OSError as error:
        return error.strerror or str(error)
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return None if not done.returncode else said[-1] if said else f"exit code {done.returncode}"


def environment(python: Path | None) -> dict[str, str] | None:
    """Return the environment of a rank: another interpreter finds this package beside its own."""
    if python is None:
        return None
    home = Path(__file__).resolve().parents[2]
    return {**os.environ, "PYTHONPATH": str(home)}


def command(
    rank: int,
    host: str,
    port: int,
    backend: Backend,
    size_bytes: int,
    count: int,
    python: Path | None = None,
) -> list[str]:
    """Return the command of one rank. `python` is the interpreter, this one's where it is None."""
    words = (rank, host, port, backend, size_bytes, count)
    return [str(python or sys.executable), "-m", "concbench.measure.collective", *map(str, words)]


def all_reduce_ns(
    host: str,
    port: int,
    backend: Backend,
    size_bytes: int,
    count: int,
    timeout_s: float = 120.0,
    python: Path | None = None,
) -> list[int]:
    """Return the times of `count` all-reduces of `size_bytes` with the rank that serves there.

    Raises MissingExtra without torch, TargetError where the other rank is not there.
    """
    require_torch(python)
    try:
        done = subprocess.run(
            command(0, host, port, backend, size_bytes, count, python),
            capture_output=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment(python),
        )
    except subprocess.TimeoutExpired:
        raise TargetError(
            f"no second rank at {host}:{port} within {timeout_s:g} s: run "
            f"`concbench link --serve --collective` there"
        ) from None
    try:
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[int])
    except (IndexError, msgspec.MsgspecError):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        why = said[-1] if said else f"it ended with {done.returncode}"
        raise TargetError(f"the collective operation with {host}:{port} failed: {why}") from None


def _listening(rank: str, host: str, port: str) -> int | None:
    """Return a socket on which rank 1 serves the store; None for the other.

    Torch's own is refused a port on which the rank before this one has just closed connections.
    """
    if rank != "1":
        return None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, int(port)), family=family).detach()


def _own_address(store: Any, rank: str, host: str) -> str:  # noqa: ANN401 - torch's store
    """Return this side's address towards the other rank; rank 0 leaves its own in the store."""
    if rank == "1":
        return _address_towards(store.get("address_of_rank_0").decode())
    own = _address_towards(host)
    store.set("address_of_rank_0", own)
    return own


def _address_towards(host: str) -> str:
    """Return the local address from which the kernel would send to a host; nothing is sent."""
    family, kind, protocol, _, where = socket.getaddrinfo(host, PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(where)
        return str(probe.getsockname()[0])


def _use_interface_of(address: str) -> None:
    """Have the backends use the interface with that IPv4 address, unless the user named one.

    Left to itself gloo takes the address that the machine's own name stands for, which is often
    that of the loopback, and would measure no link at all.
    """
    name = next((each for _, each in socket.if_nameindex() if _ipv4_of(each) == address), None)
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def _ipv4_of(interface: str) -> str | None:
    """Return an interface's IPv4 address, None where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            asked = struct.pack("256s", interface.encode()[:15])
            told = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, asked)
        except OSError:
            return None
    return socket.inet_ntoa(told[20:24])


def main(words: list[str]) -> int:
    """Take part as one rank; rank 0 prints its times."""
    rank, host, port, backend, size_bytes, count = words
    torch: Any = import_module("torch")
    distributed: Any = import_module("torch.distributed")
    # Rank 1 serves: the store is on its side, so that only one side must be reachable for it.
    store = distributed.TCPStore(
        host, int(port), 2, is_master=rank == "1", master_listen_fd=_listening(rank, host, port)
    )
    _use_interface_of(_own_address(store, rank, host))
    distributed.init_process_group(backend, store=store, rank=int(rank), world_size=2)
    device = "cuda" if backend == "nccl" else "cpu"
    tensor = torch.zeros(max(1, int(size_bytes) // 4), dtype=torch.float32, device=device)
    times = []
    for _ in range(WARMUP + int(count)):
        began = now_ns()
        distributed.all_reduce(tensor)
        if backend == "nccl":
            torch.cuda.synchronize()
        times.append(now_ns() - began)
    distributed.destroy_process_group()
    if rank == "0":
        sys.stdout.write(msgspec.json.encode(times[WARMUP:]).decode() + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
