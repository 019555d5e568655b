"""Every case by its id, in one line; `python -m tests.cases.register` writes the page about them.

A case is a way in which tools like this one have gone wrong in public, and the right answer. Each
has tests named after its id; `NOT_YET` says what of a case has none, and why.
"""

from __future__ import annotations

import re
from pathlib import Path

SECTIONS = {
    "S": "Streaming",
    "T": "Token counts",
    "D": "Definitions of TTFT, ITL and TPOT",
    "A": "Throughput accounting",
    "P": "Prompt cache",
    "C": "The client's limits",
    "H": "Hangs and lost data",
    "M": "The server's metrics and logs",
    "K": "KV cache and context",
    "X": "Proxies, URLs and the wrong server",
    "R": "Result files",
    "Q": "Wrong conclusions",
}

CASES = {
    "S01": "An opener that only names the role is no token: TTFT waits for text, no gap is added.",
    "S02": "`content: null` is no text, and two events in one read stay two.",
    "S03": "`data:` with no blank or with several reads as with one.",
    "S04": "Lines may end in LF, CRLF or CR, and a read may end anywhere in them.",
    "S06": "Comment pings during a long prefill are neither a token nor a gap.",
    "S07": "Empty and wrapped pings do not end the stream; what cannot be parsed is counted.",
    "S08": "A finish reason and a clean end succeed without `[DONE]`; neither means truncated.",
    "S09": "An error object inside a 200 is a failure: code and text kept, out of every latency.",
    "S11": "Usage is read from a chunk without choices, which is no token and has no time.",
    "S13": "Usage and `[DONE]` that come late stretch neither TPOT nor E2E.",
    "S14": "Reasoning counts as the first token; the first visible one is told apart.",
    "S15": "The deltas of a tool call are output, and are shared out by the usage beside them.",
    "S16": "A line of a megabyte is parsed like any other.",
    "S17": "Identity is asked for; a compressed answer is decoded, and its times are not believed.",
    "S19": "A cut body is a failure with its age; several cut at one age point to a proxy.",
    "T01": "Rates count tokens, not chunks, and no peak lies below the mean.",
    "T02": "The gap between chunks and the time per token are two figures.",
    "T03": "TPOT divides by tokens, and the tokens per chunk are shown.",
    "T04": "Usage that accumulates is taken at its last value, for each choice.",
    "T07": "The server's usage counts also beside empty text; never the length asked for.",
    "T08": "Blanks that another encoding would join are as many tokens as the server says.",
    "T11": "Prompts that came out longer are told; what is known not to fit is never sent.",
    "T12": "A prompt too short to exist is refused before the run, with the minimum.",
    "T13": "Answers that stop early show what share of the work was done, and by which finish.",
    "D01": "One output token has a TTFT and an E2E, and no TPOT.",
    "D02": "Tokens of the first chunk are not divided by; a count that does not fit is named.",
    "D03": "TTFT is not among the gaps between tokens.",
    "D04": "Without a first token there is no TTFT, never one counted from zero.",
    "D05": "What was not measured is null and never 0.",
    "D07": "Waiting in the client is seen from the due time, beside the time since sending.",
    "D08": "Without streaming there is no TTFT and no gap.",
    "D10": "Decode rate and end-to-end rate are two figures, with reasoning inside both windows.",
    "D11": "71 samples have no 99th percentile.",
    "A01": "Tokens count by their time of arrival; work cut at the deadline is no error.",
    "A02": "Ramp and drain are outside the steady rate, whose bounds are shown.",
    "A03": "A cold start is excluded, kept on record, or named.",
    "A04": "The burst that a closed loop starts with is not mixed with the rest.",
    "A06": "Answers without content are failures and make no throughput.",
    "A07": "A 503 is recorded with its time, and nothing is sent twice.",
    "A08": "Failures are in no latency; both counts are shown.",
    "A10": "Where nothing succeeds the report is written all the same, with the error's text.",
    "A12": "An open loop keeps its schedule, and says when it did not.",
    "P01": "A warm server is met with fresh prompts; where its cache answered, that is said.",
    "P02": "Prompts differ from their first words on; equal ones only when asked for, and named.",
    "P03": "The length asked for is the whole prompt's, and the cached share is told against it.",
    "P05": "A prompt without a count has no prefill rate.",
    "C01": "Two hundred at once reach the server at once.",
    "C02": "The limit of open files is raised or refused first; running into it voids the run.",
    "C03": "Running out of ports is the client's failure, not the server's.",
    "C06": "The client's own ceiling is measured against a null server and published.",
    "C07": "The loop's lag and the client's CPU are recorded, and void the run when they matter.",
    "H01": "Each stage is on disk before the next; stragglers end at the deadline.",
    "H02": "Ctrl-C leaves a valid, marked result and exit code 130.",
    "H03": "Half a surrogate pair spoils neither the file nor the other requests.",
    "M01": "Renamed metrics are found under every name; an absent one is not zero.",
    "M02": "NaN in a metrics page is a missing value.",
    "M03": "Gauges that keep their last value are not read as rates.",
    "M04": "Rates come from counters, not from averages that depend on who scrapes.",
    "M08": "A run shorter than the log's window has no rate from the log.",
    "M09": "One grammar reads the log of every release; a log that it cannot read is named.",
    "M11": "A negative rate is a missing one.",
    "K01": "Context is known for each slot; one event that ends all streams is told as one.",
    "K02": "More load than the cache holds shows as the number that really ran, and a queue.",
    "X01": "Behind a buffering proxy the gaps are withheld.",
    "X02": "Ready means a token; loading is waited out and is in no figure.",
    "X03": "Every spelling of the base URL leads to one place; a 404 prints what was called.",
    "X06": "An old server on the port is met before a new engine is started.",
    "R01": "Result files are strict JSON.",
    "R04": "The conditions of a run are stored with its figures.",
    "Q01": "A hidden slow state is seen as two groups; block order gives no verdict.",
    "Q02": "A verdict rests on interleaved pairs, and others on the GPU are named.",
    "Q03": "A round whose clocks dropped is marked.",
    "Q05": "One run gives no interval and no verdict.",
    "Q07": "Acceptance stands beside the rate, and no verdict is given where it differs.",
    "Q08": "What makes two recipes unlike is listed, and they are not compared.",
}

NOT_YET: dict[str, str] = {}
"""What is missing, by id. A case may be tested in part and still be here."""

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "concepts" / "cases.md"
_TEST = re.compile(r"^def (test_([a-z])(\d\d)_\w+)", re.M)

_INTRODUCTION = """# Cases

Ways in which benchmarks of LLM servers have gone wrong in public, and what holds here instead. Each
has a test of that name, most of them through the command line against a server that plays the
fault. This page is generated: `python -m tests.cases.register`.
"""


def where_tested() -> dict[str, list[str]]:
    """Return the tests of each case, as `file::function`."""
    found: dict[str, list[str]] = {}
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for name, letter, number in _TEST.findall(path.read_text(encoding="utf-8")):
            found.setdefault(f"{letter.upper()}{number}", []).append(f"{path.name}::{name}")
    return found


def page() -> str:
    """Return the documentation's page."""
    known = where_tested()
    parts = [_INTRODUCTION]
    for letter, title in SECTIONS.items():
        rows = [f"\n## {title}\n", "| case | what holds | tested in |", "|---|---|---|"]
        for identity, line in CASES.items():
            if identity[0] == letter:
                where = "<br>".join(f"`{test}`" for test in known.get(identity, []))
                open_ = f" *Open:* {NOT_YET[identity]}." if identity in NOT_YET else ""
                rows.append(f"| {identity} | {line}{open_} | {where or '–'} |")
        parts.append("\n".join(rows) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
