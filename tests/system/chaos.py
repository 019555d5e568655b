"""`python -m tests.system.chaos --seconds 120`: each command against a server that misbehaves.

The server's misbehaviour is random and seeded (`concbench reference --chaos SEED`). A command may
measure, doubt or refuse; it may not print a traceback, hang, or end with a code of its own. What
reads a study gets what bursts against such servers left, `import` gets mutated files, `link` a peer
that speaks no protocol, and what serves (`watch`, `reference`) clients that speak none.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from concbench.cli.main import COMMANDS
from concbench.clock import now_ns
from tests.fuzz.mutate import mutants
from tests.servers import reference_server
from tests.system.chaos_peers import gibberish, pester

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
    "sweep": ("PLAN", "--rounds", "1", "--hang-s", "10", "--wait-s", "10", "--out", "OUT"),
    "find": ("URL", "--slo", "ttft_p95=2s", "--max-s", "6", *SHORT, "--out", "OUT"),
    "spec": ("URL", "URL", "--levels", "2", "--contents", "code", "--pairs", "1", "--rounds", "1",
             *SHORT, "--out", "OUT"),
    "doctor": ("URL",),
    "lanes": ("up", "there", "--plan", "PLAN", "--wait-s", "10"),
}  # fmt: skip
"""How each command that talks to a server is run; PLAN is a file with the URL, OUT a folder."""

ON_A_STUDY: dict[str, tuple[str, ...]] = {
    "report": ("STUDY",),
    "compare": ("STUDY", "OTHER"),
    "query": ("STUDY", "select count(*) from requests"),
    "capacity": ("STUDY", "--slo", "ttft_p95=2s"),
    "retract": ("STUDY", "ROUND", "--why", "the server misbehaved"),
    "amend": ("STUDY", "--supersedes", "OTHER", "--why", "measured again"),
}
"""Run on what bursts against such servers left. ROUND is one of the study's."""

OTHERWISE = ("import", "link", "watch", "reference")
"""Commands with a way of their own to be given what they do not expect."""

NOT_HERE = {"try": "bursts of the embedded engine: no server that could misbehave"}
"""Commands that are not run, and why."""

PLAN = """
[lanes.there]
url = "{url}"
[workload]
output_tokens = 24
[sweep]
contexts = ["short", 200]
concurrency = [1, 2]
"""

STUDY_LASTS = 10
"""So many seeds read the same pair of studies."""

FILES = Path(__file__).parents[1] / "fuzz" / "corpus" / "imports"
WATCHED_S = 20.0


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


def started(argv: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start the command in a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-u", "-X", "faulthandler", "-m", "concbench", *argv],
        cwd=folder, start_new_session=True, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def finished(child: subprocess.Popen[str], argv: list[str], began_ns: int, said: str = "") -> Run:
    """Wait for its end; where it hangs each thread says where, and all of it is killed."""
    try:
        rest, _ = child.communicate(timeout=LIMIT_S)
        code: int | None = child.returncode
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)  # faulthandler then says where each thread waits
        try:
            rest, _ = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            killed(child)
            rest, _ = child.communicate()
        killed(child)
        code = None
    return Run(argv, code, said + rest, (now_ns() - began_ns) / 1e9)


def killed(child: subprocess.Popen[str]) -> None:
    """End the command's whole session."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def run(argv: list[str], folder: Path) -> Run:
    """Run the command to its end."""
    began_ns = now_ns()
    return finished(started(argv, folder), argv, began_ns)


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
    """Run one command once in the circumstances of that seed."""
    out = folder / f"{command}-{seed}"
    if command in AGAINST_A_SERVER:
        with misbehaving(seed) as url:
            plan = folder / "plan.toml"
            plan.write_text(PLAN.format(url=url))
            values = {"URL": url, "OUT": str(out), "PLAN": str(plan)}
            return run([command, *filled(AGAINST_A_SERVER[command], **values)], folder)
    if command in ON_A_STUDY:
        return on_a_study(command, seed, folder)
    if command == "import":
        return importing(seed, folder, out)
    if command == "link":
        with gibberish(seed) as port:
            ports = "--iperf-port", str(port), "--echo-port", str(port)
            part = "--no-throughput" if seed % 2 else "--no-latency"
            words = "127.0.0.1", *ports, part, "--seconds", "1", "--count", "50"
            return run([command, *words], folder)
    return watching(seed, folder, out) if command == "watch" else referring(seed, folder)


def on_a_study(command: str, seed: int, folder: Path) -> Run:
    """Run a command on the studies of that seed; where there is none the burst's run is it."""
    studies = []
    for number in (0, 1):
        of = 2 * (seed // STUDY_LASTS) + number
        study = folder / f"study-{of}"
        studies.append(study)
        if (study / "study.json").exists():
            continue
        shutil.rmtree(study, ignore_errors=True)
        for another in range(of, of + 100, 10):  # some servers let nobody in
            made = burst_into(study, another, folder)
            if (study / "study.json").exists() or made.wrong():
                break
        if not (study / "study.json").exists():
            return made
    study, other = studies
    rounds = sorted(path.name for path in (study / "rounds").glob("*") if path.is_dir())
    named = [*rounds, "no-such-round"][seed % (len(rounds) + 1)]
    values = {"STUDY": str(study), "OTHER": str(other), "ROUND": named}
    return run([command, *filled(ON_A_STUDY[command], **values)], folder)


def burst_into(study: Path, seed: int, folder: Path) -> Run:
    """Burst against the server of that seed."""
    with misbehaving(seed) as url:
        words = filled(AGAINST_A_SERVER["burst"], URL=url, OUT=str(study))
        return run(["burst", *words], folder)


def importing(seed: int, folder: Path, out: Path) -> Run:
    """Import a file of another tool to which something was done."""
    known_files = sorted(path for path in FILES.iterdir() if path.is_file())
    chosen = known_files[seed % len(known_files)]
    file = folder / f"{seed}-{chosen.name}"
    mutants_of = mutants([chosen.read_bytes()], (b"NaN", b"null", b"[[", b"-1", b"{}"), seed)
    file.write_bytes(next(mutants_of))
    return run(["import", str(file), "--out", str(out)], folder)


def watching(seed: int, folder: Path, out: Path) -> Run:
    """Watch the studies of a folder while a burst against such a server writes one."""
    home = out / "studies"
    home.mkdir(parents=True)
    burst_into(home / "first", seed, folder)
    if not (home / "first" / "study.json").exists():
        burst_into(home / "first", 4, folder)
    with misbehaving(seed) as url:
        words = filled(AGAINST_A_SERVER["burst"], URL=url, OUT=str(home / "second"))
        writer = started(["burst", *words, "--quiet"], folder)
        try:
            return served(
                ["watch", str(home)], seed, folder, ends=lambda: writer.poll() is not None
            )
        finally:
            killed(writer)
            writer.communicate()


def referring(seed: int, folder: Path) -> Run:
    """Let clients that speak no protocol loose on the reference server."""
    persona = PERSONAS[seed % len(PERSONAS)]
    return served(["reference", "--chaos", str(seed), "--persona", persona], seed, folder)


def served(
    argv: list[str], seed: int, folder: Path, ends: Callable[[], bool] = lambda: True
) -> Run:
    """Run a command that serves; pester it until `ends`, 20 s at most; then interrupt it."""
    began_ns = now_ns()
    child = started(argv, folder)
    assert child.stdout is not None
    said = child.stdout.readline()
    found = re.search(r"http://[^\s\"]+", said)
    while found is not None and child.poll() is None:
        pester(found[0], seed, 20)
        for page in ("", "state.json", "state.json?study=second", "report.html?study=second", "x"):
            with suppress(OSError, http.client.HTTPException):
                urllib.request.urlopen(f"{found[0].rstrip('/')}/{page}", timeout=10).read()
        if ends() or (now_ns() - began_ns) / 1e9 > WATCHED_S:
            break
    child.send_signal(signal.SIGINT)
    return finished(child, argv, began_ns, said)


def known() -> list[str]:
    """Return the commands there are that can be run here."""
    return [name for name in (*AGAINST_A_SERVER, *ON_A_STUDY, *OTHERWISE) if name in COMMANDS]


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
