"""Time of `concbench --help`, size of the base install and its number of packages."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.server import verdict

ROOT = Path(__file__).parent.parent


def help_ms(runs: int = 15) -> list[float]:
    program = Path(sys.executable).parent / "concbench"
    took = []
    for _ in range(runs):
        before = time.perf_counter()
        subprocess.run([program, "--help"], check=True, stdout=subprocess.DEVNULL)
        took.append((time.perf_counter() - before) * 1000)
    return took


def base_install() -> tuple[int, float]:
    """Return packages (pip and setuptools aside) and megabytes of a fresh base install."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = Path(folder) / "bin" / "python"
        pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
        constraints = ROOT / "constraints.txt"
        command = [*pip, "install", "-c", constraints, ROOT]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        freeze = [python, "-m", "pip", "--disable-pip-version-check", "list", "--format=freeze"]
        listed = subprocess.run(freeze, check=True, capture_output=True, text=True)
        names = [line.partition("==")[0].lower() for line in listed.stdout.split()]
        bytes_used = 0
        for path in (Path(folder) / "lib").rglob("*"):
            if path.is_file() and not {"pip", "setuptools", "pkg_resources"} & set(path.parts):
                bytes_used += path.stat().st_size
    ours = [name for name in names if name not in ("pip", "setuptools")]
    assert "concbench" in ours, names
    return len(ours), bytes_used / 1e6


def main() -> int:
    took = help_ms()
    spread = f"{min(took):.0f}–{max(took):.0f} over {len(took)} runs"
    missed = verdict(f"--help, median ms ({spread})", statistics.median(took), 150, "ms")
    packages, megabytes = base_install()
    missed += verdict("packages of the base install", packages, 25)
    missed += verdict("size of the base install", megabytes, 400, "MB")
    return missed
