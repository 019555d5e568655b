"""`python -m bench.peers`: see the package."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.peers.offline import book, hub_cache
from bench.peers.tools import OUTPUT_TOK, PEERS, PROMPT_TOK, Load, Seen
from bench.server import reference, reset, truth

TTFT_MS, ITL_MS = 50, 20
LIMIT_S = 300


def main() -> int:
    args = arguments()
    if args.install:
        return install(args.envs, args.names)
    print(
        f"  true: first token {TTFT_MS} ms after the request, then one every {ITL_MS} ms, "
        f"{OUTPUT_TOK} tokens; two requests a stream"
    )
    print(f"  {'streams':>7}  {'tool':<14} {'mean TTFT ms':>14} {'high':>14} {'output tok/s':>14}")
    for streams in args.streams:
        with reference("--ttft-ms", str(TTFT_MS), "--itl-ms", str(ITL_MS)) as url:
            show(streams, "concbench", ours(url, streams), url)
            for name in args.names:
                reset(url)
                show(streams, name, peer(name, args, url, streams), url)
                reset(url)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--envs", type=Path, default=Path(".venv-peers"))
    parser.add_argument("--tokenizer", type=Path, default=Path(".cache-vllm/smollm2"))
    parser.add_argument(
        "--streams", type=lambda text: [int(n) for n in text.split(",")], default=[64, 256, 1024]
    )
    parser.add_argument("--keep", type=Path, help="a folder for the reports, as NAME-STREAMS.…")
    parser.add_argument("--install", action="store_true", help="make the environments (gigabytes)")
    args = parser.parse_args()
    args.names = args.names or list(PEERS)
    if unknown := set(args.names) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    return args


def install(envs: Path, names: list[str]) -> int:
    """Make an environment for each; return how many did not come about."""
    missed = 0
    for name in names:
        folder = envs / name
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [folder / "bin" / "python", "-m", "pip", "install", "-q"]
        done = subprocess.run([*pip, *PEERS[name].package], check=False)
        print(f"  {name}: {'installed' if done.returncode == 0 else 'NOT installed'}", flush=True)
        missed += done.returncode != 0
    return missed


def peer(name: str, args: argparse.Namespace, url: str, streams: int) -> Seen | str:
    """Run a peer; return what it saw, or in one line why there is nothing."""
    program = args.envs / name / "bin"
    tool = PEERS[name]
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        home = hub_cache(args.tokenizer, folder / "home")
        with book(folder) as book_url:
            load = Load(url, "reference", streams, args.tokenizer.absolute(), folder, book_url)
            words = tool.argv(load)
            if not (program / words[0]).exists():
                return f"not in {args.envs} (--install)"
            code = call([str((program / words[0]).absolute()), *words[1:]], folder, home)
        if code is None:
            return f"not done after {LIMIT_S} s"
        try:
            if args.keep is not None:
                keep(folder, args.keep / f"{name}-{streams}")
            return tool.seen(folder)
        except (OSError, ValueError, KeyError, IndexError) as error:
            said = (folder / "log").read_text(errors="replace").strip().splitlines()
            return f"exit {code}, no report ({error!r}): {said[-1] if said else ''}"


def keep(folder: Path, place: Path) -> None:
    """Copy the reports that a peer wrote."""
    for path in folder.rglob("*.json*"):
        if "home" not in path.relative_to(folder).parts:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place / path.name)


def call(argv: list[str], folder: Path, home: Path) -> int | None:
    """Run a peer off the network; return its exit code, None where it did not end in time."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    places = {"HOME": str(home), "HF_HOME": str(home)}
    with (folder / "log").open("wb") as out:
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=folder,
                env=os.environ | offline | places, timeout=LIMIT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
    return done.returncode


def ours(url: str, streams: int) -> Seen | str:
    """Run the same load with this tool."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        words = ["burst", url, "--levels", str(streams), "--rounds", "2", "--warmup", "0"]
        words += ["--prompt-tokens", str(PROMPT_TOK), "--output-tokens", str(OUTPUT_TOK)]
        words += ["--quiet", "--json", str(out), "--out", str(Path(folder) / "study")]
        done = subprocess.run([sys.executable, "-m", "concbench", *words], check=False)
        if not out.exists():
            return f"exit {done.returncode}"
        client = json.loads(out.read_text())["cells"][0]["client"]
        ttft = client["ttft_ms"]
        rate = client["steady_output_tok_per_s"] or client["output_tok_per_s"]
        return Seen(ttft["mean"], ttft["p99"] or ttft["max"], "p99", rate["point"])


def show(streams: int, name: str, seen: Seen | str, url: str) -> None:
    if isinstance(seen, str):
        print(f"  {streams:7}  {name:<14} {seen}", flush=True)
        return
    high = f"{seen.high} {seen.ttft_high_ms:,.1f}"
    print(
        f"  {streams:7}  {name:<14} {seen.ttft_ms:14,.1f} {high:>14} "
        f"{seen.output_tok_per_s:14,.0f}   {server_saw(url)}",
        flush=True,
    )


def server_saw(url: str) -> str:
    """Say what the server itself stamped, so that a starved server is not blamed on a client."""
    rows = [row for row in truth(url) if row["tokens"] == OUTPUT_TOK]
    if not rows:
        return ""
    waits_ms = [(row["first_ns"] - row["received_ns"]) / 1e6 for row in rows]
    return f"(server: {np.mean(waits_ms):.1f} ms over {len(rows)} requests)"


if __name__ == "__main__":
    raise SystemExit(main())
