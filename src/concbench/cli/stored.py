"""The result of a stored study: from its cache where that is fresh, else judged and kept."""

from __future__ import annotations

from pathlib import Path

import msgspec

from concbench.result import Result
from concbench.store import cache

ENTRY = "result.msgpack"


def stored_result(folder: Path) -> Result:
    """Return what `result_of` returns, without reading a round where nothing has changed.

    Raises StudyUnreadable.
    """
    key = cache.identity(folder)
    kept = None if key is None else cache.load(folder, ENTRY, key)
    if kept is not None:
        try:
            result = msgspec.msgpack.decode(kept, type=Result)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass  # made by hand, or by a version that called itself the same
        else:
            result.study = str(folder)
            return result
    from concbench.cli.study import result_of

    result = result_of(folder)
    # A round that came in between is in the result and not in the key, or the other way round.
    if key is not None and cache.identity(folder) == key:
        cache.keep(folder, ENTRY, key, msgspec.msgpack.encode(result))
    return result
