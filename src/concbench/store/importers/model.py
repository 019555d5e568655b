"""What another tool's result file comes to: figures as told, and requests where it keeps them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from concbench.domain import Round, TargetFacts


class ToldCell(Struct, kw_only=True):
    """One cell as the other tool tells it.

    `figures` maps our name of a figure (`output_tok_per_s`, `ttft_ms`, …) to what was told of it:
    some of `values`, `mean`, `half_width`, `std`, `min`, `max`, `p50`, `p90`, `p95`, `p99`, `n`,
    in the unit of the name. With `theirs:` before it, a name is the tool's, of another meaning;
    `duration_s` is the tool's own. `measured` False with `detail` where there is no figure.
    """

    cell: str
    lane: str
    concurrency: int
    context_tok: int
    context_label: str
    rate_rps: float | None = None
    sent: int = 0
    ok: int = 0
    failed: int = 0
    prompt_tok: int | None = None
    output_tok: int | None = None
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    measured: bool = True
    detail: str | None = None


class Imported(Struct, kw_only=True):
    """One file, read. `rounds` are of those cells whose requests the file keeps.

    `timed` says whether the requests' starts are known; without them rates cannot be computed
    again. `why` explains by figure why the tool's value differs from ours. `remarks` tell what
    was left out or looked wrong.
    """

    tool: str
    version: str | None
    facts: list[TargetFacts]
    cells: list[ToldCell]
    rounds: list[Round] = field(default_factory=list)
    timed: bool = True
    why: dict[str, str] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
