"""Which tool wrote a file, and what is in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from concbench.errors import UsageError
from concbench.store.importers import aiperf, guidellm, llama_benchy, safe, vllm_bench
from concbench.store.importers.model import Imported

TOOLS = "guidellm, aiperf, genai-perf, vllm bench serve, SGLang's bench_serving, llama-benchy"


def read_files(paths: Sequence[Path], lane: str | None, began_utc: str) -> Imported:
    """Return what the files hold; several only where they belong together.

    They do when one tool wrote them: more runs, or aiperf's summary and its records. Raises
    UsageError, in one line, for a file that cannot be read, is damaged, or is of no known tool.
    """
    values: list[tuple[Path, Any]] = []
    for path in paths:
        values += [(path, value) for value in _values(path)]
    kinds = {_kind(value) for _, value in values}
    if None in kinds:
        path = next(path for path, value in values if _kind(value) is None)
        raise UsageError(f"{path} is no result that is known here; known are {TOOLS}")
    if len(kinds) > 1:
        raise UsageError(
            f"the files are of different tools ({', '.join(sorted(map(str, kinds)))}): import "
            "each by itself, since their figures mean different things"
        )
    read = _read(str(kinds.pop()), [value for _, value in values], lane, began_utc)
    if not any(cell.figures for cell in read.cells) and not read.rounds:
        raise UsageError(f"{paths[0]} holds no figure that could be used: no request succeeded?")
    return read


def _values(path: Path) -> list[Any]:
    """Return the JSON values in a file: one, or one a line."""
    content = safe.read_bytes(path)
    lines = [line for line in content.splitlines() if line.strip()]
    first = lines[0].strip()
    if path.suffix == ".jsonl" or (
        len(lines) > 1 and first.startswith(b"{") and first.endswith(b"}")
    ):
        return safe.parse_lines(content, path)
    value = safe.parse_json(content, path)
    return list(value) if isinstance(value, list) and value else [value]


def _kind(value: object) -> str | None:
    if guidellm.is_guidellm(value):
        return guidellm.TOOL
    if aiperf.is_record(value) or aiperf.is_summary(value):
        return aiperf.AIPERF
    if llama_benchy.is_benchy(value):
        return llama_benchy.TOOL
    if vllm_bench.is_sglang(value):
        return vllm_bench.SGLANG
    return vllm_bench.VLLM if vllm_bench.is_vllm(value) else None


def _read(kind: str, values: Sequence[Any], lane: str | None, began_utc: str) -> Imported:
    name = lane or kind.split()[0]
    if kind == vllm_bench.VLLM:
        return vllm_bench.read_vllm(values, name, began_utc)
    if kind == vllm_bench.SGLANG:
        return vllm_bench.read_sglang(values, name, began_utc)
    if kind == aiperf.AIPERF:
        records = [value for value in values if aiperf.is_record(value)]
        summaries = [value for value in values if not aiperf.is_record(value)]
        older = not records and not any("aiperf_version" in value for value in summaries)
        name = lane or (aiperf.GENAI_PERF if older else aiperf.AIPERF)
        return aiperf.read(summaries, records, name, began_utc)
    if len(values) > 1:
        raise UsageError(f"{len(values)} results of {kind} at once: import each by itself")
    reader = guidellm.read if kind == guidellm.TOOL else llama_benchy.read
    return reader(values[0], name, began_utc)
