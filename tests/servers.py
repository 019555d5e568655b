"""Child processes that tests talk to: the reference server, started and ended with a block."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reference_server(*options: str) -> Iterator[str]:
    """Yield the URL of a known-truth server that ends with the block."""
    command = [sys.executable, "-m", "concbench", "reference", "--until-stdin-closes", *options]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        line = child.stdout.readline()
        assert line, child.stderr.read().decode()
        try:
            yield json.loads(line)["url"]
        finally:
            child.stdin.close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
