"""Verdicts as JUnit XML, which every continuous-integration service shows as tests.

A regression proven beyond the gate is a failure, what gives no verdict an error, what is left
open is skipped. Without a gate nothing fails: each verdict is a test that passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from concbench.analyse.gate import UNJUDGED, Gated
from concbench.report.inert import inert
from concbench.report.verdicts import metric_label
from concbench.result import Result, VerdictResult

LIMIT = 400


def to_junit(result: Result, gated: Sequence[Gated]) -> str:
    """Return the document. Rows before no gate pass, but for what has no verdict."""
    suite = ET.Element("testsuite", name="concbench compare", timestamp=result.began_utc[:19])
    decided = {id(one.row): one for one in gated}
    counts = {"failure": 0, "error": 0, "skipped": 0}
    for row in result.verdicts:
        name = f"{metric_label(row.metric)} at N = {row.concurrency}, {row.context_tok} tokens"
        case = ET.SubElement(
            suite,
            "testcase",
            classname=inert(f"{row.b} against {row.a}", LIMIT),
            name=inert(name, LIMIT),
        )
        kind, text = _kind(row, decided.get(id(row)))
        if kind is not None:
            counts[kind] += 1
            ET.SubElement(case, kind, message=inert(text, LIMIT))
        ET.SubElement(case, "system-out").text = inert(_told(row), LIMIT)
    suite.set("tests", str(len(result.verdicts)))
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _kind(row: VerdictResult, decided: Gated | None) -> tuple[str | None, str]:
    if decided is None:
        return ("skipped", row.why or row.verdict) if row.verdict in UNJUDGED else (None, "")
    if decided.decision == "pass":
        return None, ""
    if decided.decision == "inconclusive":
        return "skipped", decided.reason
    return ("error" if row.verdict in UNJUDGED else "failure"), decided.reason


def _told(row: VerdictResult) -> str:
    ratio = row.ratio
    if ratio is None:
        return row.verdict
    if ratio.low is None or ratio.high is None:
        return f"{row.verdict}: {ratio.point:.4f} x"
    return f"{row.verdict}: {ratio.point:.4f} x [{ratio.low:.4f}, {ratio.high:.4f}]"
