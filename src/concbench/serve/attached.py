"""A lane that runs already: met, waited for, proven by a token, and left as it was."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import urlsplit

import msgspec

from concbench.clock import now_ns, sleep_s
from concbench.domain import TargetFacts
from concbench.engines.spec import Fact
from concbench.errors import UsageError
from concbench.plan.model import LanePlan
from concbench.serve import ports
from concbench.serve.enrich import confirm_engine, enriched
from concbench.serve.http import Access, Http
from concbench.serve.logfile import append, lines_from
from concbench.serve.probe import IMPATIENT, Attached, Launch, Patience, await_attached, fill_facts
from concbench.serve.readiness import wait_for_token
from concbench.serve.runtime import ask
from concbench.serve.swap import ready_model

_STOP_S = 120.0
_GONE_S = 30.0
_POLL_S = 0.1
_LOCAL = ("127.0.0.1", "localhost", "[::1]", "::1")


@dataclass(slots=True)
class AttachedLane:
    """A lane with a URL that has given a token. Leaving its `with` block ends only the log's copy.

    `load_wait_s` is how long the server still took to load its model after it was met;
    `first_request_s` what the first request took that brought a token.
    """

    attached: Attached
    load_wait_s: float
    first_request_s: float
    log_path: Path | None = None
    follower: subprocess.Popen[bytes] | None = None

    @property
    def facts(self) -> TargetFacts:
        """What is known of the lane."""
        return msgspec.structs.replace(self.attached.facts, first_request_s=self.first_request_s)

    def alive(self) -> str | None:
        """Return None: whether it lives is only seen by asking it."""
        return None

    def stop(self) -> None:
        """End the copying of its log. The server itself is not ours to end."""
        if self.follower is not None:
            self.follower.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.follower.wait(2.0)
            self.follower.kill()
            self.follower.wait()
            self.follower = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def attach_lane(
    lane: LanePlan,
    access: Access,
    log_path: Path,
    deadline_s: float,
    endpoint: Literal["chat", "completions"] = "chat",
    patience: Patience = IMPATIENT,
) -> AttachedLane:
    """Meet a lane with a URL; wait, at most until the deadline, while it loads its model.

    502, 503 and 504 are waited out; a refused connection is an error at once unless `patience`
    says otherwise. With `log` in the
    plan, that command's output is copied to `log_path`. Raises what `await_attached` and
    `wait_for_token` raise, and WrongPath where another engine answers than the lane names.
    """
    assert lane.url is not None
    follower = _follow(lane, log_path)
    made: AttachedLane | None = None
    try:
        met = await_attached(
            lane.url,
            access,
            lane.model,
            lane.engine,
            deadline_s=deadline_s,
            lane=lane.name,
            launch=lambda: Launch(None, lines_from(log_path) if follower else ()),
            patience=patience,
        )
        confirm_engine(met.attached)
        attached = ready_model(met.attached, access, deadline_s)
        token = wait_for_token(attached, deadline_s, None, endpoint)
        loading_ns = (met.ready_ns - met.listening_ns) + token.waited_ns - token.first_request_ns
        full = enriched(attached, local_pids(attached.root), None)
        waited_s = round(loading_ns / 1e9, 4)
        facts, more = fill_facts(full.facts, {"load_wait_s": Fact(waited_s, "measured")})
        made = AttachedLane(
            replace(full, facts=facts, extra={**full.extra, **more}),
            waited_s,
            token.first_request_ns / 1e9,
            log_path if follower else None,
            follower,
        )
    finally:
        if made is None and follower is not None:
            follower.kill()
            follower.wait()
    return made


def local_pids(root: str) -> list[int]:
    """Return the processes that listen at a URL on this machine, empty where it is another."""
    parts = urlsplit(root)
    if (parts.hostname or "") not in _LOCAL or parts.port is None:
        return []
    return [holder.pid for holder in ports.holders(parts.port)]


def stop_attached(lane: LanePlan, access: Access, folder: Path) -> dict[str, Any]:
    """Run the plan's `stop` command of a lane with a URL; return how that went.

    Keys: `stop` (the command), `exit_code`, `took_s`, `answers` (whether the URL still does).
    Raises UsageError where the plan gives no command.
    """
    if not lane.stop:
        raise UsageError(
            f"lane {lane.name} runs at {lane.url} and was not started here: stop it there, or give "
            'stop = ["command", …] in the plan'
        )
    began_ns = now_ns()
    done = ask(lane.stop, env=_environment(lane), cwd=folder, timeout_s=_STOP_S)
    http = Http(lane.url or "", replace(access, timeout_s=2.0))
    end_ns = now_ns() + int(_GONE_S * 1e9)
    while answers := bool(http.get("/").status):
        if done.returncode or now_ns() > end_ns:
            break
        sleep_s(_POLL_S)
    return {
        "stop": list(lane.stop),
        "exit_code": done.returncode,
        "took_s": (now_ns() - began_ns) / 1e9,
        "answers": answers,
    }


def _follow(lane: LanePlan, log_path: Path) -> subprocess.Popen[bytes] | None:
    """Begin to copy the log; UsageError where the command cannot be run."""
    if not lane.log:
        return None
    with append(log_path) as log:
        try:
            return subprocess.Popen(
                lane.log,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(lane),
                start_new_session=True,
            )
        except OSError as error:
            raise UsageError(f"lane {lane.name}: log = {lane.log[0]!r}: {error.strerror}") from None


def _environment(lane: LanePlan) -> dict[str, str]:
    return {**os.environ, **{name: str(value) for name, value in lane.env.items()}}
