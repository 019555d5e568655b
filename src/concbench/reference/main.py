"""`concbench reference`: the command line of the known-truth server."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

import msgspec

from concbench.errors import UsageError
from concbench.reference.faults import FAULTS, parse_faults
from concbench.reference.options import Options
from concbench.reference.personas import PERSONAS
from concbench.reference.schedule import Pace
from concbench.reference.server import Server


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{self.prog}: {message}")


def run(argv: list[str]) -> int:
    """Serve until SIGTERM, SIGINT or, where asked for, the end of stdin; return 0.

    Writes one line of JSON to stdout, `{"url", "pid"}`, once it listens. Raises UsageError or
    PortTaken.
    """
    options = parse(argv)
    server = Server(options)
    url = server.listen()
    try:
        restore = _stop_on_signals(server)
        if options.until_stdin_closes:
            _stop_when_stdin_closes(server)
        line = msgspec.json.encode({"url": url, "pid": os.getpid()}).decode()
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BaseException:
        server.net.close()
        raise
    try:
        server.run()
    finally:
        restore()
    return 0


def parse(argv: Sequence[str]) -> Options:
    """Return the options. Raises UsageError, naming what is wrong."""
    args = options_parser().parse_args(argv)
    step = args.decode_step or args.step_a_ms is not None or args.step_b_ms is not None
    step_a_ns = _ms(args.itl_ms if args.step_a_ms is None else args.step_a_ms) if step else None
    pace = Pace(
        ttft_ns=_ms(args.ttft_ms),
        itl_ns=max(1, _ms(args.itl_ms)),
        jitter=args.jitter,
        seed=args.seed,
        slots=args.slots,
        tokens_per_chunk=args.tokens_per_chunk,
        prefill_tok_per_s=args.prefill_tok_per_s,
        kv_tok=args.kv_tokens,
        step_a_ns=step_a_ns,
        step_b_ns=_ms(args.step_b_ms or 0.0),
    )
    _check(args, pace)
    faults = [fault for text in args.fault for fault in parse_faults(text)]
    return Options(
        pace=pace,
        persona=args.persona,
        model=args.model,
        more_models=tuple(args.also_model),
        swap_load_ns=_s(args.swap_load_s),
        ttl_ns=_s(args.ttl_s),
        host=args.host,
        port=args.port,
        cached_tok=args.cached_tok,
        prefix_cache=args.prefix_cache,
        context_tok=args.context,
        eos_at_tok=args.eos_at,
        usage=args.usage,
        api_key=args.api_key,
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
        keep_alive=args.keepalive,
        load_ns=_s(args.model_load_s),
        coalesce_ns=_ms(args.coalesce_ms),
        stall_at_ns=None if args.stall_at_s is None else _s(args.stall_at_s),
        stall_ns=_s(args.stall_s),
        gzip=args.gzip,
        faults=tuple(faults),
        counter_reset_at_ns=None
        if args.counter_reset_at_s is None
        else _s(args.counter_reset_at_s),
        preempt_at_ns=None if args.preempt_at_s is None else _s(args.preempt_at_s),
        two_workers=args.two_workers,
        draft_tok=args.draft_tok,
        simulated_acceptance=args.simulated_acceptance,
        foreign_tok_per_s=args.foreign_tok_per_s,
        max_inflight=args.max_inflight,
        keep_token_times=args.keep_token_times,
        tick_ns=-1 if args.tick_us is None else round(args.tick_us * 1e3),
        until_stdin_closes=args.until_stdin_closes,
        chaos_seed=args.chaos,
        die_at_ns=None if args.die_at_s is None else _s(args.die_at_s),
        reborn_after_ns=_s(args.reborn_after_s),
        reborn_model=args.reborn_model,
    )


def _check(args: argparse.Namespace, pace: Pace) -> None:
    if pace.step_a_ns is not None and pace.step_a_ns + pace.step_b_ns <= 0:
        raise UsageError("--step-a-ms and --step-b-ms cannot both be 0")
    if args.tls_key is not None and args.tls_cert is None:
        raise UsageError("--tls-key needs --tls-cert")
    if (args.also_model or args.swap_load_s or args.ttl_s) and args.persona != "llama-swap":
        raise UsageError("--also-model, --swap-load-s and --ttl-s are of --persona llama-swap")
    if not 0 <= args.jitter < 1:
        raise UsageError("--jitter is a fraction from 0 to below 1")
    if args.draft_tok and args.draft_tok < args.tokens_per_chunk - 1:
        raise UsageError("--draft-tok must be at least --tokens-per-chunk less one")
    if args.kv_tokens and args.kv_tokens < args.context:
        raise UsageError("--kv-tokens must hold at least one whole --context")


def options_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog="concbench reference",
        description="An OpenAI-style server whose every token follows a known schedule, "
        "and which tells at GET /truth what it really did.",
        epilog=f"Faults: {', '.join(FAULTS)}.",
    )
    _add_address(parser)
    _add_schedule(parser)
    _add_answers(parser)
    _add_events(parser)
    return parser


def _add_address(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    add("--port", type=_count, default=0, help="0 takes a free one")
    add("--persona", choices=sorted(PERSONAS), default="vllm", help="the engine to behave like")
    add("--model", default="reference", help="the model's name")
    add("--also-model", action="append", default=[], metavar="NAME", help="llama-swap: one more")
    add("--swap-load-s", type=_amount, default=0.0, help="llama-swap: how long a model loads")
    add("--ttl-s", type=_amount, default=0.0, help="llama-swap: unload when idle so long; 0: never")
    add("--api-key", help="the key that requests must carry")
    add("--tls-cert", help="serve HTTPS with this certificate (PEM)")
    add("--tls-key", help="and this key, unless the certificate's file holds it")
    add("--close", dest="keepalive", action="store_false", help="close after each answer")
    add("--keepalive", action="store_true", default=True, help="keep connections (the default)")
    add("--until-stdin-closes", action="store_true", help="end with the process that started it")


def _add_schedule(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--ttft-ms", type=_amount, default=50.0, help="start to first token, without prefill")
    add("--itl-ms", type=_amount, default=20.0, help="time per token")
    add("--jitter", type=_amount, default=0.0, help="largest relative deviation of a gap")
    add("--seed", type=int, default=0, help="of the jitter")
    add("--slots", "--max-running", type=_count, default=0, help="running at most; 0: unlimited")
    add("--tokens-per-chunk", type=_positive, default=1, help="a chunk comes every k x itl")
    add("--prefill-tok-per-s", type=_amount, default=0.0, help="0: prompts are free")
    add("--cached-tok", type=_count, default=0, help="tokens of each prompt that are cached")
    add("--prefix-cache", action="store_true", help="remember prompts by blocks of 16 tokens")
    add("--context", type=_positive, default=8192, help="tokens that one request may hold")
    add("--kv-tokens", type=_count, default=0, help="KV pool; beyond it requests are preempted")
    add("--decode-step", action="store_true", help="all streams get tokens at common steps")
    add("--step-a-ms", type=_amount, help="a step lasts this (default: --itl-ms)")
    add("--step-b-ms", type=_amount, help="plus this for each stream in it")
    add("--max-inflight", type=int, default=-1, help="429 beyond; 0: no limit; -1: the persona's")
    add("--tick-us", type=_amount, help="wake at most this often (default: 200 above 64 streams)")


def _add_answers(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--eos-at", type=_count, default=0, help="stop at this token unless ignore_eos is sent")
    usages = ("final", "continuous", "none", "as-asked")
    add("--usage", choices=usages, default="as-asked", help="when the counts of tokens are told")
    add(
        "--draft-tok",
        type=_count,
        default=0,
        help="say that each step drafts so many tokens and accepts all but one of a chunk's",
    )
    add("--simulated-acceptance", action="store_true", help="say that acceptance is synthetic")
    add("--coalesce-ms", type=_amount, default=0.0, help="hold bytes, as a buffering proxy")
    add("--gzip", action="store_true", help="compress for clients that accept it")
    shape = "NAME[=ARG][@every=K][@first=N][@after=N]"
    add("--fault", action="append", default=[], metavar=shape, help="go wrong so; may be repeated")
    add("--chaos", type=int, metavar="SEED", help="a quarter of all answers and pages go wrong")
    add("--keep-token-times", action="store_true", help="keep every send stamp for the truth")


def _add_events(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model-load-s", type=_amount, default=0.0, help="answer 503 so long after the start")
    add("--stall-at-s", type=_amount, help="after the first request: the engine stops once")
    add("--stall-s", type=_amount, default=1.0, help="for this long")
    add("--counter-reset-at-s", type=_amount, help="the counters begin again at 0")
    add("--preempt-at-s", type=_amount, help="half of the running requests are preempted")
    add("--die-at-s", type=_amount, help="all connections are reset and the port is closed")
    add("--reborn-after-s", type=_amount, default=0.5, help="then it is back, its counters at 0")
    add("--reborn-model", metavar="NAME", help="and serves this model instead")
    add("--two-workers", action="store_true", help="two sets of counters answer in turns")
    add("--foreign-tok-per-s", type=_amount, default=0.0, help="tokens that nobody here caused")


def _amount(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1")
    return value


def _ms(value: float) -> int:
    return round(value * 1e6)


def _s(value: float) -> int:
    return round(value * 1e9)


def _stop_on_signals(server: Server) -> Callable[[], None]:
    """Stop at SIGTERM and SIGINT; return what puts the former handlers back."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    former = {
        number: signal.signal(number, lambda *_: server.stop())
        for number in (signal.SIGTERM, signal.SIGINT)
    }

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, handler)

    return restore


def _stop_when_stdin_closes(server: Server) -> None:
    fd = sys.stdin.fileno()

    def drain() -> None:
        if not os.read(fd, 4096):
            server.stop()

    try:
        server.net.watch(fd, drain)
    except PermissionError:
        raise UsageError("--until-stdin-closes needs a pipe as stdin, not a file") from None
