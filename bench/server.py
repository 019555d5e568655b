"""The reference server as a child process, for the benchmarks."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def reference(*options: str) -> Iterator[str]:
    """Yield the URL of a reference server that ends with the block."""
    command = [sys.executable, "-m", "concbench", "reference", "--until-stdin-closes", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            yield json.loads(child.stdout.readline())["url"]
        finally:
            child.stdin.close()
            child.stdout.close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


def truth(url: str, ca: str | None = None) -> list[dict[str, Any]]:
    """Return what the server says happened, a dict a request; `ca` for one with TLS."""
    tls = ssl.create_default_context(cafile=ca) if ca else None
    with urllib.request.urlopen(f"{url}/truth", context=tls) as answer:
        return json.load(answer)["requests"]


def reset(url: str) -> None:
    """Let the server forget."""
    request = urllib.request.Request(f"{url}/truth/reset", data=b"", method="POST")
    urllib.request.urlopen(request).close()


def verdict(name: str, value: float, limit: float, unit: str = "") -> int:
    """Print a value beside its limit; return 1 where it is missed."""
    ok = value <= limit
    print(f"  {name:<44} {value:8.3f} {unit:<3} (limit {limit:g}) {'ok' if ok else 'MISSED'}")
    return 0 if ok else 1
