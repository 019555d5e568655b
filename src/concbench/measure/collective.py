"""Latency of an all-reduce between two machines, through torch.distributed where torch is there.

Run as a program in a process of its own (`python -m concbench.measure.collective RANK HOST PORT
BACKEND BYTES COUNT`): rank 1 on the serving side, which is also where the two meet, rank 0 here.
Rank 0 prints its times as a JSON array of nanoseconds.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib import import_module
from typing import Any, Literal

import msgspec

from concbench.clock import now_ns
from concbench.errors import MissingExtra, TargetError

PORT = 5203
WARMUP = 10
Backend = Literal["gloo", "nccl"]


def require_torch() -> None:
    """Raise MissingExtra where torch cannot be imported."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(
            "torch is not installed here, and carries the collective operation: install it into "
            "this environment on both machines, or leave out --collective"
        )


def command(
    rank: int, host: str, port: int, backend: Backend, size_bytes: int, count: int
) -> list[str]:
    """Return the command of one rank."""
    words = (rank, host, port, backend, size_bytes, count)
    return [sys.executable, "-m", "concbench.measure.collective", *map(str, words)]


def all_reduce_ns(
    host: str, port: int, backend: Backend, size_bytes: int, count: int, timeout_s: float = 120.0
) -> list[int]:
    """Return the times of `count` all-reduces of `size_bytes` with the rank that serves there.

    Raises MissingExtra without torch, TargetError where the other rank is not there.
    """
    require_torch()
    try:
        done = subprocess.run(
            command(0, host, port, backend, size_bytes, count),
            capture_output=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
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


def main(words: list[str]) -> int:
    """Take part as one rank; rank 0 prints its times."""
    rank, host, port, backend, size_bytes, count = words
    torch: Any = import_module("torch")
    distributed: Any = import_module("torch.distributed")
    # Rank 1 serves: the store is on its side, so that only one side must be reachable for it.
    store = distributed.TCPStore(host, int(port), 2, is_master=rank == "1")
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
