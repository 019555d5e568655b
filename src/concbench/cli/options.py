"""Options that several commands share, declared once; their texts are the reference's."""

from __future__ import annotations

import json
import os
import re
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from concbench.errors import UsageError
from concbench.plan.levels import parse_duration, parse_percent

if TYPE_CHECKING:
    from concbench.measure.carrier import Carrier

T = TypeVar("T")

STALL_VARIABLE = "CONCBENCH_TEST_STALL"


def checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let a parser that raises UsageError or ValueError serve as an argparse type."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except (UsageError, ValueError) as error:
            raise ArgumentTypeError(str(error)) from None

    return convert


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    number = int(text) if text.strip().lstrip("+").isdigit() else 0
    if number < 1:
        raise ValueError(f"{text!r} is not a whole number of at least 1")
    return number


def whole(text: str) -> int:
    """Parse a whole number from 0."""
    return 0 if text.strip() == "0" else positive(text)


def positive_or_auto(text: str) -> int | None:
    """Parse a whole number of at least 1, or `auto` (None)."""
    return None if text == "auto" else positive(text)


def seconds(text: str) -> float:
    """Parse a positive number of seconds."""
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise ValueError(f"{text!r} is not a number of seconds above 0")
    return value


def temperature(text: str) -> float:
    """Parse a sampling temperature: 0 to 100, which leaves out NaN."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise ValueError(f"{text!r} is not a temperature from 0 to 100")
    return value


def json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError('not a JSON object, such as {"top_k": 1}')
    return value


def let_options_stand_between(parser: ArgumentParser) -> None:
    """Let options stand between several names, as in `compare A --quiet B`."""

    def parse(args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401 - argparse's own
        # Argparse keeps the usage as a template meanwhile, in which a % begins a placeholder.
        parser.usage = parser.format_usage().removeprefix("usage: ").replace("%", "%%")
        return parser.parse_intermixed_args(args, namespace)

    parser.parse_args = parse  # type: ignore[method-assign]


def add_target(parser: ArgumentParser) -> None:
    """Add what it takes to reach a server."""
    group = parser.add_argument_group("target")
    group.add_argument("--model", metavar="NAME", help="which of the server's models")
    group.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="plan file whose lane TARGET names (default plan.toml or concbench.toml)",
    )
    group.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="environment variable that holds the API key (without it no key is ever sent)",
    )
    group.add_argument(
        "--api-key-file",
        type=Path,
        metavar="FILE",
        help="file that holds the API key, readable by you alone (chmod 600)",
    )
    group.add_argument("--ca", type=Path, metavar="FILE", help="PEM file of a private authority")
    group.add_argument("--insecure", action="store_true", help="do not verify the certificate")


def add_wait(parser: ArgumentParser) -> None:
    """Add how long a target that still loads is waited for."""
    parser.add_argument(
        "--wait-s",
        type=checked(seconds),
        metavar="S",
        help="wait so long for a target that still loads, or refuses connections until it has "
        "(default: 30 s for one that answers already; a lane has 600 to 3600, by engine)",
    )


def add_workload(parser: ArgumentParser) -> None:
    """Add what is asked of the server."""
    group = parser.add_argument_group("workload")
    group.add_argument(
        "--prompt-tokens",
        type=checked(positive),
        default=50,
        metavar="N",
        help="length of every prompt, chat template included (default 50)",
    )
    group.add_argument(
        "--output-tokens",
        type=checked(positive_or_auto),
        default=None,
        metavar="N|auto",
        help="length of every answer; auto (default) leaves 200 steps in the steady window",
    )
    group.add_argument("--prompts", type=Path, metavar="FILE", help="prompts, one a line, or JSONL")
    group.add_argument(
        "--content",
        choices=["prose", "code", "json", "repetition", "words"],
        default="prose",
        help="what made prompts are about (default prose)",
    )
    group.add_argument(
        "--same-prompt", action="store_true", help="the same prompt for all (a cache may answer)"
    )
    group.add_argument(
        "--seed", type=int, metavar="N", help="seed of prompts and order (default: a fresh one)"
    )
    group.add_argument(
        "--temperature", type=checked(temperature), default=0.0, metavar="T", help="default 0"
    )
    group.add_argument(
        "--endpoint", choices=["chat", "completions"], default="chat", help="default chat"
    )
    group.add_argument(
        "--stream",
        action=BooleanOptionalAction,
        default=True,
        help="stream the answers (default); without it there is no TTFT",
    )
    group.add_argument(
        "--extra-body",
        type=checked(json_object),
        default={},
        metavar="JSON",
        help="fields added to every request's body",
    )


def add_rounds(parser: ArgumentParser, default: int = 4, *, growing: bool = True) -> None:
    """Add how often a cell is repeated, and limits; `growing`: rounds may be added at need."""
    group = parser.add_argument_group("rounds")
    group.add_argument(
        "--rounds",
        type=checked(positive),
        default=default,
        metavar="N",
        help=f"rounds a cell (default {default})",
    )
    if growing:
        group.add_argument(
            "--rounds-max",
            type=checked(positive),
            metavar="N",
            help="go on beyond --rounds until the interval is within 1 %%, at most N",
        )
    group.add_argument(
        "--warmup", type=int, default=1, metavar="N", help="discarded waves before (default 1)"
    )
    group.add_argument(
        "--timeout-s", type=checked(seconds), metavar="S", help="total per request (default none)"
    )
    group.add_argument(
        "--inactivity-s",
        type=checked(seconds),
        metavar="S",
        help="cut a request that gets no byte for so long, before its first one too: failed, "
        "`inactive` (default none; a round that is silent as a whole always ends)",
    )
    group.add_argument(
        "--reset-cache",
        action="store_true",
        help="empty the engine's prompt cache before every round (vLLM, SGLang)",
    )


def add_idle(parser: ArgumentParser) -> None:
    """Add the request after a silence."""
    parser.add_argument(
        "--idle-s",
        type=checked(seconds),
        metavar="S",
        help="at the end, leave the server idle so long and measure the first request after it",
    )


def add_loop_end(parser: ArgumentParser, what: str, max_s: float) -> None:
    """Add when a closed loop ends. `what` it is called, `max_s` the longest that it may take."""
    group = parser.add_argument_group(f"when a {what} ends")
    group.add_argument(
        "--until",
        type=checked(parse_percent),
        default=0.01,
        metavar="P%",
        help="relative half-width of the steady rate's 95 %% interval to reach (default 1%%)",
    )
    group.add_argument(
        "--max-s",
        type=checked(parse_duration),
        default=max_s,
        metavar="S",
        help=f"the longest that a {what} may take (default {max_s:g})",
    )
    group.add_argument(
        "--min-s",
        type=checked(parse_duration),
        default=30.0,
        metavar="S",
        help="the shortest steady part, never under 8 request times (default 30)",
    )


def procs(text: str) -> int:
    """Parse a number of processes, or `auto` (0)."""
    return 0 if text == "auto" else positive(text)


def add_generator(parser: ArgumentParser) -> None:
    """Add who carries the load."""
    group = parser.add_argument_group("load generator")
    group.add_argument(
        "--procs",
        type=checked(procs),
        default=0,
        metavar="N|auto",
        help="processes that carry the load; auto (default): one a thousand streams, at most "
        "half the cores",
    )
    group.add_argument(
        "--workers",
        choices=["local", "ray"],
        default="local",
        help="ray: actors of a Ray cluster (RAY_ADDRESS, or one on this machine) carry it",
    )


def carrier(args: Namespace) -> Carrier:
    """Return who carries the load.

    CONCBENCH_TEST_STALL=LENGTH/EVERY (such as 10ms/100ms) blocks the client's loop so often for so
    long: for tests that the instrument knows its own error. Raises UsageError.
    """
    from concbench.measure.carrier import Carrier

    return Carrier(args.procs, args.workers, stall_of(os.environ.get(STALL_VARIABLE, "")))


def stall_of(text: str) -> tuple[int, int] | None:
    """Parse `10ms/100ms` to (length ns, every ns); empty is None. Raises UsageError."""
    if not text:
        return None
    found = re.fullmatch(r"(\d+)ms/(\d+)ms", text)
    if found is None or not 0 < int(found[1]) < int(found[2]):
        raise UsageError(f"{STALL_VARIABLE}={text}: expected LENGTH/EVERY, such as 10ms/100ms")
    return int(found[1]) * 1_000_000, int(found[2]) * 1_000_000


def add_output(parser: ArgumentParser) -> None:
    """Add where results go."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out", type=Path, metavar="DIR", help="study folder (default studies/<utc>-<name>)"
    )
    group.add_argument("--json", metavar="FILE", help="result JSON, - for stdout")
    group.add_argument("--html", type=Path, metavar="FILE", help="page (default in the study)")
    group.add_argument("--quiet", action="store_true", help="no progress, no table")
    group.add_argument("--private", action="store_true", help="keep no prompt or answer text")


def api_key(args: Namespace) -> str | None:
    """Return the key that --api-key-env or --api-key-file names, or None.

    A key never stands on the command line, where every user of the machine can read it. Raises
    UsageError where the variable is not set, or the file can be read by others.
    """
    path: Path | None = getattr(args, "api_key_file", None)
    if path is not None and args.api_key_env:
        raise UsageError("--api-key-env and --api-key-file: give one of them")
    if path is not None:
        return _key_in(path)
    if not args.api_key_env:
        return None
    key = os.environ.get(args.api_key_env, "")
    if not key:
        raise UsageError(
            f"--api-key-env {args.api_key_env}: that environment variable is not set "
            f"(export {args.api_key_env}=… first)"
        )
    if any(char in key for char in "\r\n"):
        raise UsageError(f"--api-key-env {args.api_key_env}: the key holds a line break")
    return key


def _key_in(path: Path) -> str:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(1 << 16)
    except OSError as error:
        raise UsageError(f"--api-key-file {path}: {error.strerror}") from None
    if status.st_mode & 0o077 or status.st_uid not in (0, os.geteuid()):
        raise UsageError(
            f"--api-key-file {path}: others may read or change it; chmod 600 {path} first"
        )
    key = content.decode("ascii", "replace").strip()
    if not key or not key.isprintable() or not key.isascii():
        raise UsageError(f"--api-key-file {path}: expected one key, printable ASCII, on one line")
    return key
