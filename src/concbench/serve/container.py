"""An engine in a container: started, followed and stopped as one.

The container is the daemon's child, not ours: no signal to the client ends it, and the client's
death does not. So it has a name of its own, `stop` and `kill` end it, and `inspect` says whether it
is gone. It is not run with `--rm`: after a crash the exit code and the reason are still there to
read, and it is removed once they have been.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from concbench.clock import now_ns
from concbench.engines.failures import diagnose
from concbench.engines.spec import StartFailure
from concbench.errors import NotReady, PortTaken
from concbench.serve.family import GRACE_S, has_life
from concbench.serve.guard import MARK_VARIABLE
from concbench.serve.logfile import append, lines_from
from concbench.serve.memory import tree_rss_bytes
from concbench.serve.process import Guard, told_end
from concbench.serve.runtime import (
    LANE_LABEL,
    MARK_LABEL,
    ask,
    end_container,
    first_object,
    inspect,
    pid_of,
)

_PULL_S = 7200.0
_GUARD_GRACE_S = 5

_RUN_FAILURES: tuple[tuple[str, str], ...] = (
    (r"Cannot connect to the Docker daemon|Is the docker daemon running", "is its daemon running?"),
    (r"could not select device driver|nvidia-container-cli", "install NVIDIA's container toolkit"),
    (r"is already in use by container|name .* is already in use", "give it another name"),
    (r"permission denied.*docker\.sock", "may this user reach the runtime?"),
    (r"executable file not found|exec format error", "does the image hold that program?"),
)


@dataclass(frozen=True, slots=True)
class ContainerRecipe:
    """What is needed to start one. `runtime` is the program's path, `args` go to the entry point.

    `host_port` None: the host's network is used, and nothing is published. `log` and `stop` are
    commands in the place of the runtime's own.
    """

    runtime: str
    image: str
    args: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    name: str | None = None
    host_port: int | None = None
    inside_port: int = 8000
    log: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()

    def run_words(self, name: str, lane: str, mark: str, variables: Sequence[str]) -> list[str]:
        """Return the words that start it. Variables are named, never spelled out: they may be keys.

        Ports are published on the loopback only.
        """
        published = f"127.0.0.1:{self.host_port}:{self.inside_port}"
        ports = [] if self.host_port is None else ["--publish", published]
        named = [word for variable in variables for word in ("--env", variable)]
        labels = ["--label", f"{MARK_LABEL}={mark}", "--label", f"{LANE_LABEL}={lane}"]
        head = [self.runtime, "run", "--detach", "--name", name, *labels, *ports, *named]
        return [*head, *self.options, self.image, *self.args]


@dataclass(slots=True)
class Container:
    """A started container, with what `process.Child` has. `facts` go into `TargetFacts`."""

    argv: tuple[str, ...]
    recipe: ContainerRecipe
    name: str
    facts: dict[str, Any]
    log_path: Path
    log_offset: int
    spawned_ns: int
    guard: Guard
    failures: Sequence[StartFailure] = ()
    teardown: dict[str, Any] | None = field(default=None)
    follower: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def pid(self) -> int:
        """The first process of the container as this machine numbers it, 0 where unknown."""
        return pid_of(self.recipe.runtime, self.name)

    def state(self) -> dict[str, Any]:
        """Return the runtime's `State` of it, empty when it is gone."""
        return inspect(self.recipe.runtime, self.name).get("State") or {}

    def alive(self) -> str | None:
        """Return None while it runs, otherwise one line on how it ended and what it last said.

        The runtime is asked only once the follower has ended: that happens with the container, or
        by itself, and then it is begun again.
        """
        if self.follower is not None and self.follower.poll() is None:
            return None
        state = self.state()
        if state.get("Running"):
            self.follow()
            return None
        return told_end(_ending(state), self)

    def failure(self) -> StartFailure | None:
        """Return the known cause of a failed start that the log shows, if any."""
        found = diagnose(self.failures, self.log_lines())
        return found[0] if found else None

    def log_lines(self) -> list[str]:
        """Return what it has logged."""
        return lines_from(self.log_path, self.log_offset)

    def members(self) -> list[psutil.Process]:
        """Return its living processes, as far as this machine shows them."""
        pid = self.pid
        found = []
        with contextlib.suppress(psutil.Error):
            for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                if pid and has_life(process):
                    found.append(process)
        return found

    def rss_bytes(self) -> int:
        """Return the resident memory of its processes, 0 where they are not shown."""
        pid = self.pid
        return (tree_rss_bytes([pid]) or 0) if pid else 0

    def follow(self) -> None:
        """Begin to write its log to the file, or go on from where the last follower ended."""
        runtime = [self.recipe.runtime, "logs", "--follow"]
        if self.follower is not None:
            # Lines later than the last one written; a repeated one does less harm than a lost one.
            since = datetime.fromtimestamp(self.log_path.stat().st_mtime, UTC)
            runtime += ["--since", since.strftime("%Y-%m-%dT%H:%M:%S.%fZ")]
        words = list(self.recipe.log) or [*runtime, self.name]
        with append(self.log_path) as log:
            self.follower = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK_VARIABLE: self.guard.mark},
                start_new_session=True,
            )

    def stop(self, grace_s: float = GRACE_S) -> dict[str, Any]:
        """End and remove it; return how that went. Safe to call again.

        Keys: `signal`, `exit_code`, `took_s`, `rss_before_bytes`, `rss_after_bytes`, `left_pids`,
        and of the container `container_gone`, `oom_killed`.
        """
        if self.teardown is not None:
            return self.teardown
        began_ns = now_ns()
        members, rss_before = self.members(), self.rss_bytes()
        self.teardown = end_container(self.recipe.runtime, self.name, self.recipe.stop, grace_s)
        left = [process.pid for process in members if _lives(process)]
        self.teardown |= {
            "took_s": (now_ns() - began_ns) / 1e9,
            "rss_before_bytes": rss_before,
            "rss_after_bytes": (tree_rss_bytes(left) or 0) if left else 0,
            "left_pids": left,
        }
        self._end_follower()
        if self.teardown["container_gone"]:
            self.guard.release()
        return self.teardown

    def detach(self) -> None:
        """Let it live on when the tool ends: its log is no longer followed, the guard goes."""
        self._end_follower()
        self.guard.release()

    def _end_follower(self) -> None:
        if self.follower is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.follower.wait(1.0)
            self.follower.kill()
            self.follower.wait()


def start_container(
    recipe: ContainerRecipe,
    lane: str,
    log_path: Path,
    env: Mapping[str, str],
    cwd: Path | None = None,
    failures: Sequence[StartFailure] = (),
) -> Container:
    """Start a container under a guard; the image is fetched before the clock starts.

    Raises NotReady or PortTaken, in the runtime's own words with advice.
    """
    watching = Guard(log_path)
    name = recipe.name or f"concbench-{lane}-{watching.mark[:8]}"
    try:
        pulled_s = _require_image(recipe, log_path)
        # Told before it is begun: the tool may die while the daemon creates it.
        if recipe.name is None or not inspect(recipe.runtime, name):
            watching.on_end([recipe.runtime, "stop", "-t", str(_GUARD_GRACE_S), name])
            watching.on_end([recipe.runtime, "rm", "--force", "--volumes", name])
        with append(log_path) as log:
            offset = log.seek(0, os.SEEK_END)
        argv = recipe.run_words(name, lane, watching.mark, list(env))
        marked = {**os.environ, **env, MARK_VARIABLE: watching.mark}
        spawned_ns = now_ns()
        done = ask(argv, env=marked, cwd=cwd)
        if done.returncode:
            raise _run_error(recipe, done)
        facts = _facts(recipe, name, pulled_s)
        made = Container(
            tuple(argv), recipe, name, facts, log_path, offset, spawned_ns, watching, failures
        )
        made.follow()
    except BaseException:
        if _is_ours(recipe.runtime, name, watching.mark):
            end_container(recipe.runtime, name, (), 0.0)
        watching.release()
        raise
    return made


def _require_image(recipe: ContainerRecipe, log_path: Path) -> float | None:
    """Fetch the image unless it is there; return how long that took. Raises NotReady."""
    if ask([recipe.runtime, "image", "inspect", recipe.image]).returncode == 0:
        return None
    began_ns = now_ns()
    with append(log_path) as log:
        done = ask([recipe.runtime, "pull", recipe.image], timeout_s=_PULL_S, out=log)
    if done.returncode:
        said = next(iter(lines_from(log_path)[-1:]), "nothing")
        advice = _advice(said) or "check the image's name, and whether a registry can be reached"
        raise NotReady(
            f"the image {recipe.image} is not here and could not be fetched: {advice} "
            f"({Path(recipe.runtime).name} said: {said.strip()[:200]})"
        )
    return (now_ns() - began_ns) / 1e9


def _run_error(
    recipe: ContainerRecipe, done: subprocess.CompletedProcess[bytes]
) -> NotReady | PortTaken:
    said = " ".join(done.stderr.decode("utf-8", "replace").split())[-400:] or "nothing"
    text = f"{Path(recipe.runtime).name} run failed with exit code {done.returncode}: {said}"
    if re.search(r"port is already allocated|address already in use", said):
        return PortTaken(f"{text}; give the lane another port")
    advice = _advice(said)
    return NotReady(f"{text}; {advice}" if advice else text)


def _advice(said: str) -> str | None:
    return next((advice for pattern, advice in _RUN_FAILURES if re.search(pattern, said)), None)


def _facts(recipe: ContainerRecipe, name: str, pulled_s: float | None) -> dict[str, Any]:
    """Return what identifies it: the image by its digest, since tags move."""
    known = inspect(recipe.runtime, name)
    image = first_object(ask([recipe.runtime, "image", "inspect", recipe.image]).stdout)
    digests = image.get("RepoDigests")
    return {
        "runtime": Path(recipe.runtime).name,
        "name": name,
        "id": known.get("Id"),
        "image": recipe.image,
        "image_id": image.get("Id") or known.get("Image"),
        "image_digest": digests[0] if isinstance(digests, list) and digests else None,
        "options": list(recipe.options),
        "args": list(recipe.args),
        "pulled_s": pulled_s,
    }


def _is_ours(runtime: str, name: str, mark: str) -> bool:
    labels = (inspect(runtime, name).get("Config") or {}).get("Labels") or {}
    return bool(labels.get(MARK_LABEL) == mark)


def _ending(state: Mapping[str, Any]) -> str:
    if not state:
        return "is gone: its container was removed by someone else"
    code = state.get("ExitCode")
    why = " (out of memory: the kernel ended it)" if state.get("OOMKilled") else ""
    said = state.get("Error")
    return f"ended with exit code {code}{why}{f' ({said})' if said else ''}"


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and has_life(process)
    except psutil.Error:
        return False
