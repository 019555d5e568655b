"""Draws the pictures of `docs/concepts`: each from a computation by the product's own code.

The engine is the reference server's scheduler in virtual time, the numbers are those of `analyse`;
nothing is measured, so every run draws the same. `python tools/concept_pictures.py` writes them.
"""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from concbench.analyse.estimate import mean_estimate
from concbench.analyse.rates import batch_tok_per_s
from concbench.analyse.streams import Stream, itl_ns, streams_of, tpot_ns, ttft_ns
from concbench.analyse.windows import NoWindow, Window, burst_window, in_flight
from concbench.domain import Cell, Events, RequestRecord, Round, RoundInstrument, Workload
from concbench.reference.schedule import Job, Pace, Scheduler

FOLDER = Path(__file__).parents[1] / "docs" / "concepts" / "pictures"
WIDTH = 720
LEFT, RIGHT = 70, 700
STYLE = """
svg { color-scheme: light dark; }
text { font: 13px system-ui, "Liberation Sans", sans-serif; fill: #1b1f24; }
.quiet { fill: #59636e; } .axis { stroke: #8a939c; } .paper { fill: #ffffff; }
.wait { fill: #c9ced4; } .prefill { fill: #e69f00; } .decode { fill: #56a0d3; }
.window { fill: #009e73; opacity: .16; } .edge { stroke: #00694d; stroke-width: 1.5; }
.line { fill: none; stroke: #0072b2; stroke-width: 2; }
.other { fill: none; stroke: #b34700; stroke-width: 2; stroke-dasharray: 5 3; }
.hit { stroke: #0072b2; stroke-width: 2; } .miss { stroke: #b3261e; stroke-width: 3; }
.dot { fill: #0072b2; } .truth { stroke: #1b1f24; stroke-dasharray: 4 3; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ed; } .quiet { fill: #aab4bf; } .paper { fill: #14171b; }
  .wait { fill: #4a525b; } .prefill { fill: #d08f00; } .decode { fill: #3d86b8; }
  .edge { stroke: #4fd6ae; } .window { fill: #4fd6ae; } .line { stroke: #6db9ee; }
  .other { stroke: #f0955a; } .hit { stroke: #6db9ee; } .miss { stroke: #ff8a80; }
  .dot { fill: #6db9ee; } .truth { stroke: #e6e9ed; }
}
"""


def served(jobs: Sequence[tuple[int, int]], pace: Pace) -> Round:
    """Return the burst in which `(prompt, output)` tokens are asked for at once, as `pace` has it.

    Client and server share a clock here and no time is lost between them.
    """
    scheduler, events = Scheduler(pace), Events()
    made = [Job(0, prompt, output, owner=k) for k, (prompt, output) in enumerate(jobs)]
    times: list[list[int]] = [[] for _ in made]
    for job in made:
        scheduler.submit(job)
    while (due := scheduler.next_due_ns()) is not None:
        scheduler.advance(due, lambda job, tokens, at: times[job.owner].extend([at] * tokens))
    for number, stamps in enumerate(times):
        events.request.extend(array("i", [number] * len(stamps)))
        events.read.extend(array("i", range(len(stamps))))
        events.kernel_ns.extend(array("q", stamps))
        events.user_ns.extend(array("q", stamps))
        events.kind.extend(array("b", [0] * len(stamps)))
        events.tokens.extend(array("f", [1.0] * len(stamps)))
    return Round(
        round_id="picture",
        cell=Cell(cell="c", lane="a", concurrency=len(jobs), context_tok=50),
        index=0,
        phase="measured",
        workload=Workload(prompt_tokens=50, output_tokens=0, seed=0, arrival="burst"),
        began_utc="",
        start_ns=0,
        end_ns=max(stamps[-1] for stamps in times),
        requests=[_record(k, jobs[k][1], stamps) for k, stamps in enumerate(times)],
        events=events,
        instrument=RoundInstrument(stamp="kernel"),
    )


def _record(index: int, output: int, stamps: Sequence[int]) -> RequestRecord:
    return RequestRecord(
        index=index,
        worker=index,
        due_ns=0,
        sent_ns=0,
        outcome="ok",
        first_token_ns=stamps[0],
        first_visible_ns=stamps[0],
        last_token_ns=stamps[-1],
        end_ns=stamps[-1],
        asked_output_tok=output,
        output_tok=output,
        token_source="usage",
        events=len(stamps),
        first_event_tok=1.0,
        finish_reason="length",
    )


def line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    """Return a line."""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def bar(kind: str, x1: float, x2: float, y: float, height: float) -> str:
    """Return a bar from x1 to x2."""
    width = max(0.0, x2 - x1)
    return f'<rect class="{kind}" x="{x1:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}"/>'


def words(text: str, x: float, y: float, anchor: str = "start", kind: str = "") -> str:
    """Return a text."""
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def path(kind: str, points: Sequence[tuple[float, float]]) -> str:
    """Return an open line through points."""
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" points="{text}"/>'


def picture(height: int, title: str, told: str, parts: Sequence[str]) -> str:
    """Return an SVG with a title and a description for those who do not see it."""
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-labelledby="t d">\n<title id="t">{escape(title)}</title>\n'
        f'<desc id="d">{escape(told)}</desc>\n<style>{STYLE}</style>\n'
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>\n{body}\n</svg>\n'
    )


def scale(end: float) -> Callable[[float], float]:
    """Return what maps 0..end to the drawing's width."""
    return lambda value: LEFT + (RIGHT - LEFT) * value / end


def time_axis(end_ns: float, y: float, step_s: float) -> list[str]:
    """Return an axis in seconds."""
    x = scale(end_ns)
    marks = [k * step_s for k in range(int(end_ns / 1e9 / step_s) + 1)]
    ticks = [words(f"{mark:g} s", x(mark * 1e9), y + 18, "middle", "quiet") for mark in marks]
    return [line("axis", LEFT, y, RIGHT, y), *ticks]


def stream_bars(streams: Sequence[Stream], x: Callable[[float], float], started: bool) -> list[str]:  # noqa: FBT001
    """Return a bar a request: until the first token, then decoding."""
    parts = []
    for number, stream in enumerate(streams):
        y, first, last = 40 + 22 * number, stream.first_ns or 0, stream.last_ns or 0
        parts.append(words(f"request {number + 1}", 4, y + 13, kind="quiet"))
        parts.append(bar("prefill" if started else "wait", x(0), x(first), y, 16))
        parts.append(bar("decode", x(first), x(last), y, 16))
    return parts


def steady() -> str:
    """Draw the steady window of a burst, with both rates."""
    pace = Pace(
        ttft_ns=40_000_000, prefill_tok_per_s=2500, step_a_ns=16_000_000, step_b_ns=1_500_000
    )
    jobs = [(250 + 330 * k, 100 + 14 * ((k * 5) % 8)) for k in range(8)]
    round_ = served(jobs, pace)
    streams = streams_of(round_)
    window, classic = burst_window(round_, streams), batch_tok_per_s(round_)
    assert isinstance(window, Window)
    assert classic is not None
    x, bottom = scale(round_.end_ns), 40 + 22 * len(streams) + 6
    low, high = x(window.start_ns), x(window.end_ns)
    told = (
        f"Eight requests sent at once. All eight decode only inside the window, from the last "
        f"first token to the first last token: {window.tok_per_s:.0f} tok/s there. All tokens "
        f"divided by the whole time give {classic:.0f} tok/s."
    )
    parts = [
        *stream_bars(streams, x, started=True),
        bar("window", low, high, 32, bottom - 32),
        line("edge", low, 28, low, bottom),
        line("edge", high, 28, high, bottom),
        words(f"steady: {window.tok_per_s:.0f} tok/s", (low + high) / 2, 22, "middle"),
        *time_axis(round_.end_ns, bottom, 0.5),
        words(f"whole batch: {classic:.0f} tok/s", LEFT, bottom + 40),
        words(
            "orange: prefill · blue: decode · green: all decode", RIGHT, bottom + 40, "end", "quiet"
        ),
    ]
    return picture(bottom + 52, "The steady window of a burst", told, parts)


def request() -> str:
    """Draw one request: TTFT, the gaps between tokens, TPOT, E2E."""
    pace = Pace(ttft_ns=180_000_000, itl_ns=40_000_000, jitter=0.35, seed=5)
    stream = streams_of(served([(50, 12)], pace))[0]
    ttft, gaps, tpot = ttft_ns(stream) or 0, itl_ns(stream) / 1e6, (tpot_ns(stream) or 0) / 1e6
    first, last = stream.first_ns or 0, stream.last_ns or 0
    x = scale(last * 1.02)
    told = (
        f"One request of 12 tokens. TTFT {ttft / 1e6:.0f} ms from sent to the first token event; "
        f"11 gaps of {gaps.min():.0f} to {gaps.max():.0f} ms; TPOT, the time from the first to the "
        f"last token event divided by the 11 later tokens, {tpot:.1f} ms; E2E {last / 1e6:.0f} ms."
    )
    ticks = [line("hit", x(time), 62, x(time), 92) for time in stream.times_ns]
    wide = int(gaps.argmax())
    a, b = x(stream.times_ns[wide]), x(stream.times_ns[wide + 1])
    parts = [
        line("axis", LEFT, 92, RIGHT, 92),
        line("truth", x(0), 30, x(0), 150),
        words("sent", x(0), 22, "middle", "quiet"),
        *ticks,
        _span(x(0), x(first), 50, f"TTFT {ttft / 1e6:.0f} ms"),
        _span(a, b, 50, f"ITL {gaps.max():.0f} ms"),
        _span(x(first), x(last), 118, f"TPOT = this ÷ 11 = {tpot:.1f} ms", below=True),
        _span(x(0), x(last), 152, f"E2E {last / 1e6:.0f} ms", below=True),
    ]
    return picture(186, "The times of one request", told, parts)


def _span(x1: float, x2: float, y: float, text: str, *, below: bool = False) -> str:
    middle = words(text, (x1 + x2) / 2, y + 18 if below else y - 8, "middle")
    ends = [line("edge", x, y - 4, x, y + 4) for x in (x1, x2)]
    return "\n".join([line("edge", x1, y, x2, y), *ends, middle])


def interval() -> str:
    """Draw 40 studies of 4 rounds with a known truth, and which intervals hold it."""
    draw, truth, spread = random.Random(1), 400.0, 6.0
    made = [mean_estimate(draw.gauss(truth, spread) for _ in range(4)) for _ in range(40)]
    known = [(e.low, e.high, e.point) for e in made if e is not None and e.low and e.high]
    missed = sum(not low <= truth <= high for low, high, _ in known)
    top, bottom = max(high for _, high, _ in known), min(low for low, _, _ in known)
    y = lambda value: 20 + 190 * (top - value) / (top - bottom)  # noqa: E731
    parts = [line("truth", LEFT, y(truth), RIGHT, y(truth)), words("truth", 8, y(truth) + 4)]
    for number, (low, high, point) in enumerate(known):
        x = LEFT + 12 + (RIGHT - LEFT - 24) * number / (len(known) - 1)
        kind = "hit" if low <= truth <= high else "miss"
        parts.append(line(kind, x, y(low), x, y(high)))
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y(point):.1f}" r="3"/>')
    parts.append(
        words(
            f"{missed} of {len(known)} intervals miss the truth (thick): 95 % means 1 in 20",
            LEFT,
            236,
        )
    )
    told = (
        f"Forty studies of four rounds each, drawn around a known rate of {truth:.0f} tok/s. "
        f"{missed} of the {len(known)} 95 % intervals do not hold it; about 2 are to be expected."
    )
    return picture(248, "What a 95 % interval promises", told, parts)


def agreement() -> str:
    """Draw the client's tokens and the server's counter over the same stretch."""
    pace = Pace(ttft_ns=60_000_000, step_a_ns=18_000_000, step_b_ns=1_000_000)
    round_ = served([(50, 90)] * 4, pace)
    made, link = sorted(round_.events.kernel_ns), random.Random(1)
    arrived = sorted(at + link.randint(5_000_000, 60_000_000) for at in made)
    read_ns = list(range(100_000_000, round_.end_ns, 250_000_000))
    counted = [sum(at <= read for at in made) for read in read_ns]
    low, high = read_ns[0], read_ns[-1]
    client = sum(low < at <= high for at in arrived) / (high - low) * 1e9
    server = (counted[-1] - counted[0]) / (high - low) * 1e9
    x, total = scale(arrived[-1]), len(arrived)
    y = lambda count: 200 - 170 * count / total  # noqa: E731
    told = (
        f"Tokens over time behind a link of 5 to 60 ms: the client's arrivals as a line, the "
        f"server's counter as it is read each 0.25 s as steps. Between the first and the last "
        f"reading the client saw {client:.1f} tok/s and the server counted {server:.1f}: "
        f"{100 * (client - server) / server:+.1f} %."
    )
    steps = []
    for (at, count), following in zip(
        zip(read_ns, counted, strict=True), [*read_ns[1:], arrived[-1]], strict=True
    ):
        steps += [(x(at), y(count)), (x(following), y(count))]
    parts = [
        bar("window", x(low), x(high), 24, 176),
        path("line", [(x(at), y(number + 1)) for number, at in enumerate(arrived)]),
        path("other", steps),
        *time_axis(arrived[-1], 200, 0.5),
        words("full line: tokens at the client, 5 to 60 ms later", LEFT + 10, 44),
        words("dashed: the server's counter when read", LEFT + 10, 62),
        words(f"client {client:.1f}, server {server:.1f} tok/s over the shaded stretch", LEFT, 240),
    ]
    return picture(252, "Client and server over the same stretch", told, parts)


def over_kv() -> str:
    """Draw a burst of more requests than the KV pool holds."""
    pace = Pace(ttft_ns=50_000_000, itl_ns=20_000_000, kv_tok=1600)
    round_ = served([(200, 60)] * 9, pace)
    streams = streams_of(round_)
    found = burst_window(round_, streams)
    assert isinstance(found, NoWindow)
    classic, x = batch_tok_per_s(round_) or 0.0, scale(round_.end_ns)
    bottom = 40 + 22 * len(streams) + 6
    decoding = found.decoding_mean or 0.0
    late = sum((stream.first_ns or 0) > 2 * pace.ttft_ns for stream in streams)
    told = (
        f"Nine requests on a KV pool that cannot hold them: {late} wait (grey) until others end, "
        f"and of those that run some are put back and end late. "
        f"{decoding:.1f} decode on average, {in_flight(round_).peak} are in flight. All nine never "
        f"decode together, so there is no steady rate; the whole batch gives {classic:.0f} tok/s."
    )
    parts = [
        words(f"in flight {in_flight(round_).peak} · decoding {decoding:.1f} on average", LEFT, 22),
        *stream_bars(streams, x, started=False),
        *time_axis(round_.end_ns, bottom, 0.5),
        words(f"no steady window · whole batch: {classic:.0f} tok/s", LEFT, bottom + 40),
        words("grey: waiting and prefill · blue: decode", RIGHT, bottom + 40, "end", "quiet"),
    ]
    return picture(bottom + 52, "More requests than the KV pool holds", told, parts)


PICTURES = {
    "steady": steady,
    "request": request,
    "interval": interval,
    "agreement": agreement,
    "over-kv": over_kv,
}


def main() -> int:
    """Write every picture; return 0."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw(), encoding="utf-8")
        print(FOLDER / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
