"""How each peer is asked for the same load, and where its report says what it saw."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.offline import REPOSITORY

PROMPT_TOK, OUTPUT_TOK, REQUESTS_A_STREAM = 50, 128, 2


@dataclass(frozen=True)
class Load:
    """A closed loop of `streams` with two requests each; files go to `folder`.

    `book_url` holds text for a tool that quotes from a book.
    """

    url: str
    model: str
    streams: int
    tokenizer: Path
    folder: Path
    book_url: str

    @property
    def requests(self) -> int:
        """How many requests in all."""
        return REQUESTS_A_STREAM * self.streams


@dataclass(frozen=True)
class Seen:
    """What a tool reports: mean and high-percentile TTFT in ms, output tokens per second."""

    ttft_ms: float
    ttft_high_ms: float
    high: str
    output_tok_per_s: float


@dataclass(frozen=True)
class Peer:
    """`package` is what pip installs; `argv` gives the words after the environment's `bin/`."""

    package: tuple[str, ...]
    argv: Callable[[Load], list[str]]
    seen: Callable[[Path], Seen]


def vllm_argv(load: Load) -> list[str]:
    return [
        *("vllm", "bench", "serve", "--backend", "openai", "--base-url", load.url),
        *("--endpoint", "/v1/completions", "--model", load.model),
        *("--tokenizer", str(load.tokenizer), "--dataset-name", "random"),
        *("--random-input-len", str(PROMPT_TOK), "--random-output-len", str(OUTPUT_TOK)),
        *("--num-prompts", str(load.requests), "--max-concurrency", str(load.streams)),
        *("--ignore-eos", "--save-result", "--save-detailed", "--result-dir", str(load.folder)),
        *("--result-filename", "vllm.json", "--ready-check-timeout-sec", "0"),
    ]


def vllm_seen(folder: Path) -> Seen:
    told = _json(folder / "vllm.json")
    return Seen(told["mean_ttft_ms"], told["p99_ttft_ms"], "p99", told["output_throughput"])


def guidellm_argv(load: Load) -> list[str]:
    backend = f"kind=openai_http,target={load.url},model={load.model}"
    data = f"kind=synthetic_text,prompt_tokens={PROMPT_TOK},output_tokens={OUTPUT_TOK}"
    return [
        *("guidellm", "run", "--backend", backend, "--data", data),
        *("--profile", f"kind=concurrent,streams={load.streams}"),
        *("--constraint", f"kind=max_requests,count={load.requests}"),
        *("--tokenizer", f"kind=hf_auto,model={load.tokenizer}", "--disable-console"),
        *("--output", f"kind=json,path={load.folder / 'guidellm.json'}"),
    ]


def guidellm_seen(folder: Path) -> Seen:
    metrics = _json(folder / "guidellm.json")["benchmarks"][0]["metrics"]
    ttft = metrics["time_to_first_token_ms"]["successful"]
    rate = metrics["output_tokens_per_second"]["successful"]["mean"]
    return Seen(ttft["mean"], ttft["percentiles"]["p99"], "p99", rate)


def aiperf_argv(load: Load) -> list[str]:
    return [
        *("aiperf", "profile", "--model", load.model, "--url", load.url),
        *("--endpoint-type", "chat", "--streaming", "--use-server-token-count"),
        *("--concurrency", str(load.streams), "--request-count", str(load.requests)),
        *("--synthetic-input-tokens-mean", str(PROMPT_TOK)),
        *("--output-tokens-mean", str(OUTPUT_TOK), "--tokenizer", REPOSITORY),
        *("--artifact-dir", str(load.folder), "--ui", "none"),
    ]


def aiperf_seen(folder: Path) -> Seen:
    (found,) = folder.rglob("profile_export_aiperf.json")
    told = _json(found)
    ttft = told["time_to_first_token"]
    return Seen(ttft["avg"], ttft["p99"], "p99", told["output_token_throughput"]["avg"])


def llama_benchy_argv(load: Load) -> list[str]:
    return [
        *("llama-benchy", "--base-url", f"{load.url}/v1", "--model", load.model),
        *("--tokenizer", str(load.tokenizer), "--pp", str(PROMPT_TOK), "--tg", str(OUTPUT_TOK)),
        *("--concurrency", str(load.streams), "--runs", str(REQUESTS_A_STREAM)),
        *("--book-url", load.book_url, "--skip-coherence", "--exact-tg"),
        *("--save-result", str(load.folder / "benchy.json"), "--format", "json"),
    ]


def llama_benchy_seen(folder: Path) -> Seen:
    row = _json(folder / "benchy.json")["benchmarks"][0]
    ttft = sorted(row["e2e_ttft"]["values"])
    return Seen(row["e2e_ttft"]["mean"], ttft[-1], "max", row["tg_throughput"]["mean"])


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


PEERS = {
    "aiperf": Peer(("aiperf",), aiperf_argv, aiperf_seen),
    "guidellm": Peer(("guidellm",), guidellm_argv, guidellm_seen),
    "llama-benchy": Peer(("llama-benchy",), llama_benchy_argv, llama_benchy_seen),
    "vllm": Peer(("vllm",), vllm_argv, vllm_seen),
}
