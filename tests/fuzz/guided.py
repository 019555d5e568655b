"""`python -m tests.fuzz.guided TARGET CORPUS [libFuzzer options]`: atheris on one target.

Ends as libFuzzer ends: 0 when its time is over, another code at a finding, which it writes down.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import atheris


def main() -> None:
    """Instrument the target's modules, then fuzz until libFuzzer ends the process."""
    name = sys.argv[1]
    with atheris.instrument_imports(include=["concbench"], enable_loader_override=False):
        from tests.fuzz.targets import TARGETS

        for module in TARGETS[name].modules:
            package = importlib.import_module(module)
            for found in pkgutil.iter_modules(getattr(package, "__path__", [])):
                importlib.import_module(f"{module}.{found.name}")
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[name].run)
    atheris.Fuzz()


main()
