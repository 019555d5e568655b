"""The client's calibrated ceiling in a study: copied in when it begins, given to the judgement."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from concbench.domain import to_builtins
from concbench.load.procs import auto_procs
from concbench.measure.calibrate import stored
from concbench.store.read import StudyReader
from concbench.store.write import StudyWriter

NOTE = "calibration"


def note_calibration(writer: StudyWriter, args: Namespace, machine: Mapping[str, Any]) -> None:
    """Copy what is known of this machine's client into the study; nothing where it is nothing."""
    found = stored(str(machine.get("fingerprint")))
    if found:
        data = {
            "procs": getattr(args, "procs", 1),
            "workers": getattr(args, "workers", "local"),
            "calibrations": [to_builtins(found[procs]) for procs in sorted(found)],
        }
        writer.note(NOTE, data)


def ceilings(reader: StudyReader) -> dict[str, float]:
    """Return the client's ceiling in tok/s by cell, of the number of processes that carried it.

    Cells for which no calibration fits are left out.
    """
    notes = reader.notes(NOTE)
    if not notes or notes[-1].get("workers") == "ray":
        return {}
    note = notes[-1]
    known = {each["procs"]: each["ceiling_tok_per_s"] for each in note["calibrations"]}
    cores = int(reader.record.machine.get("cpu_count") or 1)
    found = {}
    for info in reader.rounds():
        procs = note["procs"] or auto_procs(info.cell.concurrency, cores)
        if known.get(procs):
            found[info.cell.cell] = float(known[procs])
    return found
