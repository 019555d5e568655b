"""Docker and Podman by their command lines: ask, inspect, end.

Whatever a runtime cannot do is an exit code, never an exception: without its daemon it knows of no
container.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from concbench.clock import now_ns, sleep_s
from concbench.errors import UsageError
from concbench.serve.family import GRACE_S

RUNTIMES = ("docker", "podman")
MARK_LABEL = "concbench.mark"
LANE_LABEL = "concbench.lane"

_QUICK_S = 60.0
_POLL_S = 0.05


def end_container(
    runtime: str, name: str, stop: Sequence[str] = (), grace_s: float = GRACE_S
) -> dict[str, Any]:
    """Stop, then kill, then remove a container; return what is known of its end.

    Keys: `signal`, `exit_code`, `oom_killed`, `container_gone`.
    """
    state = inspect(runtime, name).get("State") or {}
    used = None
    if state.get("Running"):
        used = "SIGTERM"
        words = list(stop) or [runtime, "stop", "-t", str(round(grace_s)), name]
        ask(words, timeout_s=grace_s + _QUICK_S)
        state = inspect(runtime, name).get("State") or {}
        if state.get("Running"):
            used = "SIGKILL"
            ask([runtime, "kill", name])
            state = _until_stopped(runtime, name)
        elif state.get("ExitCode") == 128 + 9:
            used = "SIGKILL"
    code = state.get("ExitCode")
    ask([runtime, "rm", "--force", "--volumes", name])
    return {
        "signal": used,
        "exit_code": code if isinstance(code, int) else None,
        "oom_killed": state.get("OOMKilled") is True,
        "container_gone": not inspect(runtime, name),
    }


def inspect(runtime: str, name: str) -> dict[str, Any]:
    """Return what the runtime knows of a container, empty when there is none."""
    return first_object(ask([runtime, "container", "inspect", name]).stdout)


def pid_of(runtime: str, name: str) -> int:
    """Return a container's first process as this machine numbers it, 0 where unknown."""
    return int((inspect(runtime, name).get("State") or {}).get("Pid") or 0)


def marked_containers(runtime: str) -> list[dict[str, Any]]:
    """Return all containers that carry our label, running or not; none without a daemon."""
    words = [runtime, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={MARK_LABEL}"]
    done = ask(words, timeout_s=10.0)
    return [found for line in done.stdout.split() if (found := inspect(runtime, line.decode()))]


def runtime_path(name: str) -> str:
    """Return the runtime's program. Raises UsageError where it is not on PATH."""
    path = shutil.which(name)
    if path is None:
        raise UsageError(f"{name} is not on PATH: install it, or set runtime to the other one")
    return path


def host_network(options: Sequence[str]) -> bool:
    """Return whether the options ask for the host's own network."""
    joined = " ".join(options)
    return bool(re.search(r"--net(?:work)?[= ]host\b", joined))


def _until_stopped(runtime: str, name: str) -> dict[str, Any]:
    deadline_ns = now_ns() + int(GRACE_S * 1e9)
    while True:
        state = inspect(runtime, name).get("State") or {}
        if not state.get("Running") or now_ns() > deadline_ns:
            return state
        sleep_s(_POLL_S)


def ask(
    words: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = _QUICK_S,
    out: Any = subprocess.PIPE,  # noqa: ANN401 - a file, or PIPE
) -> subprocess.CompletedProcess[bytes]:
    """Run a runtime's command; one that cannot run or hangs is a failed one."""
    err = subprocess.STDOUT if out is not subprocess.PIPE else subprocess.PIPE
    try:
        return subprocess.run(
            words,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=env,
            cwd=cwd,
            timeout=timeout_s,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, b"", b"it did not answer in time")
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, b"", str(error.strerror).encode())


def first_object(text: bytes) -> dict[str, Any]:
    """Return the first JSON object of an answer, empty where there is none."""
    try:
        value = json.loads(text)
    except (ValueError, TypeError):
        return {}
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, dict) else {}
