"""The result of a stored study, and what a page draws of it: from its cache where that is fresh.

Else both are made of the rounds, and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from concbench.result import Result
from concbench.store import cache

if TYPE_CHECKING:
    from concbench.analyse.exhibits import Exhibit

ENTRY = "result.msgpack"
EXHIBITS = "exhibits.msgpack"
T = TypeVar("T")


def stored_result(folder: Path) -> Result:
    """Return what `result_of` returns, without reading a round where nothing has changed.

    Raises StudyUnreadable.
    """
    key = cache.identity(folder)
    result = _kept_result(folder, key)
    if result is not None:
        return result
    from concbench.cli.study import result_of

    result = result_of(folder)
    _keep(folder, key, {ENTRY: result})
    return result


def drawn_result(folder: Path) -> tuple[Result, list[Exhibit]]:
    """Return what `stored_result` returns, and what a page draws of each cell.

    Exhibits are kept beside the result once a page was made: a study of ten million token stamps
    is read for its first page alone. Raises StudyUnreadable.
    """
    from concbench.analyse.exhibits import Exhibit

    key = cache.identity(folder)
    exhibits = _decoded(folder, EXHIBITS, key, list[Exhibit])
    result = None if exhibits is None else _kept_result(folder, key)
    if exhibits is not None and result is not None:
        return result, exhibits
    from concbench.cli.study import result_of

    made: list[Exhibit] = []
    result = result_of(folder, exhibits=made)
    _keep(folder, key, {ENTRY: result, EXHIBITS: made})
    return result, made


def refreshed(folder: Path) -> Result:
    """Write the page and the JSON in a study's folder anew, where they are; return the result.

    They are what people pass on, so after a correction they must not go stale. Raises
    StudyUnreadable, OutputUnusable.
    """
    from concbench.report.html import write_html
    from concbench.result import to_json
    from concbench.store.files import output_errors

    result, exhibits = drawn_result(folder)
    if (folder / "result.json").exists():
        with output_errors(folder):
            (folder / "result.json").write_bytes(to_json(result))
    if (folder / "report.html").exists():
        write_html(result, folder / "report.html", exhibits)
    return result


def _kept_result(folder: Path, key: str | None) -> Result | None:
    result = _decoded(folder, ENTRY, key, Result)
    if result is not None:
        result.study = str(folder)
    return result


def _decoded(folder: Path, name: str, key: str | None, kind: type[T]) -> T | None:
    kept = None if key is None else cache.load(folder, name, key)
    try:
        return None if kept is None else msgspec.msgpack.decode(kept, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # made by hand, or by a version that called itself the same


def _keep(folder: Path, key: str | None, entries: Mapping[str, object]) -> None:
    # A round that came in between is in the result and not in the key, or the other way round.
    if key is not None and cache.identity(folder) == key:
        for name, value in entries.items():
            cache.keep(folder, name, key, msgspec.msgpack.encode(value))
