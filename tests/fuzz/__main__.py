"""`python -m tests.fuzz TARGET --seconds 600 --seed N`: fuzz one target and say what came of it.

With atheris installed (the extra `fuzz`) coverage guides it; else mutations alone. A finding is
kept as a file and ends the run with exit code 1. `all` takes the targets in turn.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from concbench.clock import now_ns
from tests.fuzz.mutate import MOST_BYTES, mutants
from tests.fuzz.targets import CORPUS, TARGETS, clean_up

HANG_CPU_S = 20
"""CPU time that one input of at most 64 KiB may take."""

GROWTH_BYTES = 512 << 20
"""Memory by which one input may raise the process's peak."""

GUIDED_RSS_MB = 3072


class Finding(Exception):
    """An input that broke the code, and how."""

    def __init__(self, data: bytes, what: str) -> None:
        super().__init__(f"{what}\nthe input, {len(data)} bytes, begins {data[:200]!r}")
        self.data = data
        self.what = what


class _Hang(BaseException):
    """One input took more CPU time than any may."""


def corpus_of(name: str) -> list[bytes]:
    """Return the kept inputs of a target, by file name."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


def execute(name: str, data: bytes) -> None:
    """Run one input. Raises Finding: an exception, a hang, or memory out of all proportion."""
    run = TARGETS[name].run
    before = signal.signal(signal.SIGVTALRM, _hung)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_CPU_S)
    peak = _peak_bytes()
    try:
        run(data)
    except _Hang:
        raise Finding(data, f"no end after {HANG_CPU_S} s of CPU time") from None
    except Exception:  # noqa: BLE001 - whatever leaves a target is the finding
        raise Finding(data, traceback.format_exc()) from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    if _peak_bytes() - peak > GROWTH_BYTES:
        raise Finding(data, f"the peak of memory rose by {_peak_bytes() - peak:,} bytes")


def _hung(number: int, frame: object) -> None:
    del number, frame
    raise _Hang


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def plain(name: str, seconds: float, seed: int, most: int | None = None) -> int:
    """Run the corpus, then mutants until the time or `most` is reached; return how many ran."""
    corpus, done = corpus_of(name), 0
    end_ns = now_ns() + int(seconds * 1e9)
    for data in corpus:
        execute(name, data)
        done += 1
    for data in mutants(corpus, TARGETS[name].words, seed):
        if now_ns() > end_ns or done - len(corpus) == most:
            return done
        execute(name, data)
        done += 1
    return done


def guided(name: str, seconds: float, seed: int, grown: Path) -> int:
    """Run atheris in a process of its own; return how many inputs ran. Raises Finding."""
    with tempfile.TemporaryDirectory(prefix="concbench-fuzz-") as place:
        words, left = Path(place) / "words", Path(place) / "finding-"
        words.write_text("".join(f'"{_escaped(w)}"\n' for w in TARGETS[name].words))
        said = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.guided", name, str(grown), str(CORPUS / name),
             f"-max_total_time={int(seconds)}", f"-seed={seed}", f"-max_len={MOST_BYTES}",
             f"-timeout={HANG_CPU_S * 6}", f"-rss_limit_mb={GUIDED_RSS_MB}", f"-dict={words}",
             f"-artifact_prefix={left}", "-print_final_stats=1"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            check=False,
        )  # fmt: skip
        for found in Path(place).glob("finding-*"):
            tail = "\n".join(said.stdout.splitlines()[-60:])
            raise Finding(found.read_bytes(), tail)
    counts = re.findall(r"number_of_executed_units: (\d+)", said.stdout)
    if said.returncode or not counts:
        raise SystemExit(f"atheris ended with {said.returncode}:\n{said.stdout[-4000:]}")
    return int(counts[-1])


def _escaped(word: bytes) -> str:
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in word)


def run(name: str, seconds: float, seed: int, *, plainly: bool) -> int:
    """Fuzz one target and print the outcome; return 1 where something was found."""
    began_ns = now_ns()
    grown = Path(tempfile.mkdtemp(prefix=f"concbench-fuzz-{name}-"))
    engine = "mutations" if plainly else "atheris"
    try:
        count = plain(name, seconds, seed) if plainly else guided(name, seconds, seed, grown)
    except Finding as finding:
        kept = Path(f"finding-{name}-{hashlib.sha256(finding.data).hexdigest()[:12]}")
        kept.write_bytes(finding.data)
        _say(f"{name}: FINDING after {_elapsed_s(began_ns):.0f} s, kept as {kept}:")
        _say(finding.what)
        return 1
    finally:
        clean_up()
        if not any(grown.iterdir()):
            shutil.rmtree(grown, ignore_errors=True)
    _say(
        f"{name}: {count:,} executions in {_elapsed_s(began_ns):.0f} s by {engine}, seed {seed}, "
        f"from {len(corpus_of(name))} kept inputs: no finding"
        + (f"; new inputs in {grown}" if grown.exists() else "")
    )
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _elapsed_s(began_ns: int) -> float:
    return (now_ns() - began_ns) / 1e9


def main() -> int:
    """Read the command line and fuzz; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=float, default=600, help="per target (default 600)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", action="store_true", help="mutations, even if atheris is there")
    args = parser.parse_args()
    plainly = args.plain or importlib.util.find_spec("atheris") is None
    names = list(TARGETS) if args.target == "all" else [args.target]
    return max(run(name, args.seconds, args.seed, plainly=plainly) for name in names)


if __name__ == "__main__":
    sys.exit(main())
