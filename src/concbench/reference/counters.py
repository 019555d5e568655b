"""The engine's own accounting, as its metrics page shows it: sums and histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5)
SECONDS_LONG = (*SECONDS, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)


@dataclass(slots=True)
class Histogram:
    """A Prometheus histogram. `counts` has one entry a bound and one for infinity."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value into its bucket."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def rows(self) -> list[tuple[str, int]]:
        """Return (le, cumulative count) from the lowest bound to `+Inf`."""
        out, seen = [], 0
        labels = [str(float(bound)) for bound in self.bounds] + ["+Inf"]
        for label, count in zip(labels, self.counts, strict=True):
            seen += count
            out.append((label, seen))
        return out


class Counters:
    """One worker's books. Running requests are not in `sums`: the page adds what they wrote."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = defaultdict(float)
        self.began_ns = 0
        self.histograms: dict[str, Histogram] = {}
        self.clear(0)

    def clear(self, now_ns: int) -> None:
        """Begin at zero, as after a restart."""
        self.began_ns = now_ns
        self.sums.clear()
        self.histograms = {
            "ttft_s": Histogram(SECONDS_LONG),
            "queue_s": Histogram(SECONDS_LONG),
            "e2e_s": Histogram(SECONDS_LONG),
            "tpot_s": Histogram(SECONDS),
            "prompt_tok": Histogram(TOKENS),
            "output_tok": Histogram(TOKENS),
        }
