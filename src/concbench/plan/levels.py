"""Values as they are typed: levels, SLOs, durations, percentages, sizes."""

from __future__ import annotations

import difflib
import math
import re
from typing import Literal

from msgspec import Struct

from concbench.errors import UsageError

MAX_CONCURRENCY = 65_536
"""As many as one machine has ports towards one server."""

_MAX_DIGITS = 30
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0}
_SECONDS |= {"h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "b": 1}
_BYTES |= {unit: 1000**power for power, unit in enumerate("kmgt", start=1)}
_BYTES |= {unit + "b": 1000**power for power, unit in enumerate("kmgt", start=1)}
_BYTES |= {unit + "ib": 1024**power for power, unit in enumerate("kmgt", start=1)}
_BYTES |= {unit + "i": 1024**power for power, unit in enumerate("kmgt", start=1)}


def parse_levels(text: str, option: str = "--levels") -> list[int]:
    """Return concurrencies in rising order, each once.

    `1,2,4,8` lists them; `1..16` doubles from the first up to the last, which is always among
    them (`1..12` is 1, 2, 4, 8, 12). Raises UsageError.
    """
    levels: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = _level(first, text, option)
        if not dots:
            levels.add(low)
            continue
        high = _level(last, text, option)
        if high < low:
            raise UsageError(
                f'{option} "{text}": {part.strip()} runs backwards; write the low first'
            )
        while low < high:
            levels.add(low)
            low *= 2
        levels.add(high)
    return sorted(levels)


def _level(text: str, whole: str, option: str) -> int:
    """Return one concurrency. Raises UsageError."""
    word = text.strip()
    if not re.fullmatch(r"[0-9]{1,9}", word) or not 1 <= int(word) <= MAX_CONCURRENCY:
        shown = f'"{word}"' if word else "an empty level"
        raise UsageError(
            f'{option} "{whole}": {shown} is no concurrency; expected whole numbers from 1 to '
            f"{MAX_CONCURRENCY}, as in 1,2,4,8 or 1..16"
        )
    return int(word)


def parse_duration(text: str) -> float:
    """Return seconds from `2s`, `500ms`, `1m30s`, `2h`; a bare number is seconds.

    Raises UsageError unless the result is more than 0 and finite.
    """
    word = text.strip().lower()
    seconds = 0.0
    if re.fullmatch(_NUMBER, word):
        seconds = float(word)
    elif re.fullmatch(rf"(?:{_NUMBER}\s*(?:{'|'.join(_SECONDS)})\s*)+", word):
        parts = re.findall(rf"{_NUMBER}\s*({'|'.join(sorted(_SECONDS, key=len)[::-1])})", word)
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if not (0 < seconds < math.inf):
        raise UsageError(f'"{text}" is no duration; expected one such as 2s, 500ms or 1m30s')
    return seconds


def parse_percent(text: str) -> float:
    """Return the fraction, 0.01 for `1%`. Raises UsageError outside 0 (excluded) to 100 %."""
    match = re.fullmatch(rf"{_NUMBER}\s*%", text.strip())
    if match is None or not 0 < float(match[1]) <= 100:
        raise UsageError(f'"{text}" is no percentage; expected one such as 1% or 0.5%')
    return float(match[1]) / 100


def parse_size(text: str) -> int:
    """Return bytes from `24GiB`, `16 MB`, `512k` or a bare number; k is 1000 and Ki 1024.

    Raises UsageError unless it is a whole, positive number of bytes.
    """
    match = re.fullmatch(rf"{_NUMBER}\s*([A-Za-z]*)", text.strip())
    unit = None if match is None else _BYTES.get(match[2].lower())
    if match is None or unit is None or len(match[1]) > _MAX_DIGITS:
        raise UsageError(f'"{text[:40]}" is no size; expected one such as 24GiB, 16MB or 4096')
    size = float(match[1]) * unit if "." in match[1] else int(match[1]) * unit
    if size < 1 or size == math.inf or size != int(size):
        raise UsageError(f'"{text}" is no whole number of bytes; expected one such as 24GiB')
    return int(size)


Quantile = Literal["p50", "p90", "p95", "p99"]
_QUANTILES: dict[str, Quantile] = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}
_LATENCIES = ("ttft", "ttft_from_due", "ttfo", "icl", "itl", "tpot", "e2e", "e2e_from_due")
_DEFAULT_QUANTILE = "p95"


class Slo(Struct, frozen=True, kw_only=True):
    """One objective. `metric` is the result's key, `limit` in the unit that it names.

    `at_most` tells an upper limit (latencies, failures) from a lower one (rates).
    `quantile` is None for `user_tok_per_s` (a floor on 1 ÷ TPOT at p95) and `failed_pct`.
    """

    key: str
    metric: str
    quantile: Quantile | None
    limit: float
    at_most: bool


def parse_slo(text: str) -> list[Slo]:
    """Return the objectives of `ttft_p95=2s,user_tok_per_s=20`, in the order given.

    Latencies (ttft, ttft_from_due, ttfo, icl, itl, tpot, e2e, e2e_from_due) take `_p50`, `_p90`,
    `_p95` (the default) or `_p99` and a duration; `user_tok_per_s` a number; `failed` a
    percentage. Raises UsageError for an unknown, repeated or unreadable one.
    """
    slos: dict[str, Slo] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not (name and equals and value):
            raise UsageError(f'--slo "{text}": expected NAME=LIMIT, as in ttft_p95=2s')
        try:
            slo = _slo(name, value)
        except UsageError as error:
            raise UsageError(f"--slo {name}: {error}") from error
        if slo.key in slos:
            raise UsageError(f'--slo "{text}": {slo.key} is given twice; keep one')
        slos[slo.key] = slo
    return list(slos.values())


def _slo(name: str, value: str) -> Slo:
    """Return one objective. Raises UsageError."""
    if name == "user_tok_per_s":
        if not re.fullmatch(_NUMBER, value) or not 0 < float(value) < math.inf:
            raise UsageError(f'"{value}" is no rate; expected tokens per second, such as 20')
        return Slo(key=name, metric=name, quantile=None, limit=float(value), at_most=False)
    if name == "failed":
        limit = 100 * parse_percent(value)
        return Slo(key=name, metric="failed_pct", quantile=None, limit=limit, at_most=True)
    stem, _, tail = name.rpartition("_")
    latency, quantile = (stem, tail) if tail in _QUANTILES else (name, _DEFAULT_QUANTILE)
    if latency not in _LATENCIES:
        known = [f"{each}_{q}" for each in _LATENCIES for q in _QUANTILES]
        near = difflib.get_close_matches(name, ["user_tok_per_s", "failed", *known], n=1)
        hint = f'did you mean "{near[0]}"?' if near else "expected ttft_p95, tpot_p95, e2e_p95, "
        raise UsageError(
            f"unknown objective; {hint}" + ("" if near else "user_tok_per_s or failed")
        )
    return Slo(
        key=f"{latency}_{quantile}",
        metric=f"{latency}_ms",
        quantile=_QUANTILES[quantile],
        limit=1000 * parse_duration(value),
        at_most=True,
    )
