"""`python -m tests.system.chaos --seconds 120`: each command against a server that misbehaves.

The server's misbehaviour is random and seeded (`concbench reference --chaos SEED`). A command may
measure, doubt or refuse; it may not print a traceback, hang, or end with a code of its own.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from concbench.cli.main import COMMANDS
from concbench.clock import now_ns
from tests.servers import reference_server

PERSONAS = ("vllm", "llamacpp", "sglang", "llama-swap", "ollama", "openai")
CODES = {0, 2, 3, 4, 5, 130}
LIMIT_S = 240.0
"""One run may take so long; the longest honest one is far below."""

SHORT = ("--output-tokens", "24")
AGAINST_A_SERVER: dict[str, tuple[str, ...]] = {
    "burst": ("URL", "--levels", "1,2,4", "--rounds", "2", *SHORT, "--out", "OUT"),
    "sustain": ("URL", "-c", "4", "--max-s", "6", "--min-s", "3", "--rounds", "2", *SHORT,
                "--out", "OUT"),
    "rate": ("URL", "--rps", "10", "--duration", "3", "--rounds", "2", *SHORT, "--out", "OUT"),
    "ab": ("URL", "URL", "--levels", "2", "--pairs", "1", "--rounds", "1", *SHORT, "--out", "OUT"),
    "find": ("URL", "--slo", "ttft_p95=2s", "--max-s", "6", *SHORT, "--out", "OUT"),
    "spec": ("URL",),
    "doctor": ("URL",),
    "lanes": ("up", "there", "--plan", "PLAN", "--wait-s", "10"),
}  # fmt: skip
"""How each command that talks to a server is run; PLAN is a file with the URL, OUT a folder."""

ON_A_STUDY: dict[str, tuple[str, ...]] = {
    "report": ("STUDY",),
    "compare": ("STUDY", "STUDY"),
    "query": ("STUDY", "select count(*) from requests"),
    "capacity": ("STUDY", "--slo", "ttft_p95=2s"),
}
"""Run on what a burst against such a server left."""


@dataclass
class Run:
    """One run: the exit code (None: it hung), what it said, how long it took."""

    argv: list[str]
    code: int | None
    said: str
    took_s: float

    def wrong(self) -> str | None:
        """Return what broke the contract, None where nothing did."""
        if self.code is None:
            return f"hung: no end after {LIMIT_S:.0f} s"
        if "Traceback (most recent call last)" in self.said:
            return "a traceback"
        return None if self.code in CODES else f"exit code {self.code}"


def run(argv: list[str], folder: Path) -> Run:
    """Run the command in a session of its own; where it hangs all of it is killed."""
    began_ns = now_ns()
    child = subprocess.Popen(
        [sys.executable, "-u", "-X", "faulthandler", "-m", "concbench", *argv],
        cwd=folder, start_new_session=True, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = child.communicate(timeout=LIMIT_S)
        code: int | None = child.returncode
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)  # faulthandler then says where each thread waits
        try:
            said, _ = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            said, _ = child.communicate()
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        code = None
    return Run(argv, code, said, (now_ns() - began_ns) / 1e9)


@contextmanager
def misbehaving(seed: int) -> Iterator[str]:
    """Yield the URL of a server that misbehaves in its own way for each seed."""
    persona = PERSONAS[seed % len(PERSONAS)]
    extra = ("--die-at-s", "2", "--reborn-model", "another") if seed % 5 == 4 else ()
    with reference_server(
        "--chaos", str(seed), "--persona", persona, "--ttft-ms", "5", "--itl-ms", "2", *extra
    ) as url:
        yield url


def filled(words: tuple[str, ...], **values: str) -> list[str]:
    """Return the words with the placeholders replaced."""
    return [values.get(word, word) for word in words]


def one(command: str, seed: int, folder: Path) -> Run:
    """Run one command once against the server of that seed."""
    out = folder / f"{command}-{seed}"
    if command in AGAINST_A_SERVER:
        with misbehaving(seed) as url:
            plan = folder / "plan.toml"
            plan.write_text(f'[lanes.there]\nurl = "{url}"\n')
            values = {"URL": url, "OUT": str(out), "PLAN": str(plan)}
            return run([command, *filled(AGAINST_A_SERVER[command], **values)], folder)
    study = folder / "study"
    if not (study / "study.json").exists():
        shutil.rmtree(study, ignore_errors=True)
        with misbehaving(seed) as url:
            words = filled(AGAINST_A_SERVER["burst"], URL=url, OUT=str(study))
            made = run(["burst", *words], folder)
        if not (study / "study.json").exists():
            return made
    return run([command, *filled(ON_A_STUDY[command], STUDY=str(study))], folder)


def known() -> list[str]:
    """Return the commands there are that can be run here."""
    return [name for name in (*AGAINST_A_SERVER, *ON_A_STUDY) if name in COMMANDS]


def main() -> int:
    """Run each command for so long; print what came of it; return 1 where something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.chaos", description=__doc__)
    parser.add_argument("commands", nargs="*", help="default: all there are")
    parser.add_argument("--seconds", type=float, default=120, help="per command (default 120)")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    args = parser.parse_args()
    failures = 0
    for command in args.commands or known():
        folder = Path(tempfile.mkdtemp(prefix="concbench-chaos-"))
        codes: Counter[int | None] = Counter()
        longest_s, seed, began_ns = 0.0, args.seed, now_ns()
        while (now_ns() - began_ns) / 1e9 < args.seconds:
            done = one(command, seed, folder)
            codes[done.code] += 1
            longest_s = max(longest_s, done.took_s)
            if wrong := done.wrong():
                failures += 1
                sys.stdout.write(f"{command}, seed {seed}: {wrong}\n{done.said[-4000:]}\n")
            seed += 1
        told = ", ".join(f"{code} × {n}" for code, n in sorted(codes.items(), key=str))
        sys.stdout.write(
            f"{command}: {codes.total()} runs in {(now_ns() - began_ns) / 1e9:.0f} s from seed "
            f"{args.seed}, longest {longest_s:.0f} s; exit codes {told}\n"
        )
        sys.stdout.flush()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
