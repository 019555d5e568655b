"""What one observer is to watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from concbench.engines.spec import EngineSpec

SLOTS_PATHS = {"llamacpp": "/slots"}
"""Engine → where it tells of each slot: its only token count that moves at every step."""

ACTIVITY_PATHS = {"llama-swap": "/api/metrics/activity"}
"""Engine → where it lists finished requests."""


class Job(Struct, frozen=True, kw_only=True):
    """Where to look, how often, and whose processes are ours.

    Paths are appended to `base_url`; None is not polled. `log_offset` None starts at the file's
    end. `own` maps a name (`engine`, `client`) to root process ids: their trees and sessions are
    ours, all others foreign. `headers` may hold a key: they go over stdin and are in no repr.
    """

    base_url: str
    engine: str
    headers: dict[str, str] = {}
    metrics_path: str | None = None
    slots_path: str | None = None
    activity_path: str | None = None
    log_file: str | None = None
    log_offset: int | None = None
    log_command: list[str] | None = None
    interval_ms: int = 250
    host_interval_ms: int = 1000
    timeout_s: float = 5.0
    own: dict[str, list[int]] = {}
    host: bool = True
    gpu: bool = True
    ca: str | None = None
    insecure: bool = False

    def __repr__(self) -> str:
        return f"Job({self.base_url!r}, {self.engine!r})"

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths to poll, in their order."""
        found = (self.metrics_path, self.slots_path, self.activity_path)
        return tuple(path for path in found if path is not None)


def job_for(
    spec: EngineSpec,
    root: str,
    *,
    api_key: str | None = None,
    ca: Path | None = None,
    insecure: bool = False,
    log: Path | Sequence[str] | None = None,
    log_offset: int | None = None,
    own: Mapping[str, Sequence[int]] | None = None,
    local: bool = True,
    prefix: str = "",
    query: str = "",
    proxy: EngineSpec | None = None,
) -> Job:
    """Return the usual job for an engine: its metrics page, slots, list of requests, log.

    `log` is a file or a command whose output is the log. `local` says whether the engine runs on
    this machine: of another one's neighbours this machine's GPUs know nothing. `prefix` comes
    before the engine's own paths (`/upstream/MODEL` behind llama-swap) and `query` after them
    (`?model=MODEL` at a router). `proxy` is what stands before the engine: its list of requests is
    at the root.
    """

    def under(path: str | None) -> str | None:
        return None if path is None else prefix + path + query

    return Job(
        base_url=root.rstrip("/"),
        engine=spec.name,
        headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        metrics_path=under(spec.metrics_path),
        slots_path=under(SLOTS_PATHS.get(spec.name)),
        activity_path=ACTIVITY_PATHS.get((proxy or spec).name),
        log_file=str(log) if isinstance(log, Path) else None,
        log_offset=log_offset,
        log_command=None if log is None or isinstance(log, Path) else list(log),
        own={name: list(pids) for name, pids in (own or {}).items()},
        gpu=local,
        ca=None if ca is None else str(ca),
        insecure=insecure,
    )
