"""Doubts about what was asked and counted: prompts, caches, answers' lengths, token sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import median

from concbench.analyse.evidence import Evidence
from concbench.analyse.server import cache_use
from concbench.analyse.severity import doubt
from concbench.domain import Doubt, RequestRecord
from concbench.result import CellResult

CACHE_SHARE = 0.01
LENGTH_SHARE = 0.02
CUT_SHARE = 0.10
CHUNK_SHARE = 0.05
ESTIMATED = ("tokenizer", "chunks")


def prompt_cache_hit(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Prompt tokens from a cache, beyond the template that all prompts share.

    Not every server tells a request's cached tokens (vLLM does when asked to at its start), so
    its counters stand in where no answer did: hits ÷ queries, of all requests of the rounds.
    """
    known = [r for r in seen.ok if r.cached_tok is not None and r.prompt_tok]
    told = "usage" if known else "metrics"
    own = sum(max(0, (r.prompt_tok or 0) - seen.template_tok) for r in known)
    cached = sum(max(0, (r.cached_tok or 0) - seen.template_tok) for r in known)
    if not known:
        cached, own = _cache_by_counters(seen)
    if not own or cached < CACHE_SHARE * own:
        return
    yield doubt(
        "prompt_cache_hit",
        result.cell,
        f"{100 * cached / own:.1f} % of the prompts' own tokens came from the prompt cache: TTFT "
        "and rates are those of a warm cache. Reset the cache (--reset-cache) or change --seed.",
        {
            "cached_tok": cached,
            "prompt_tok": own,
            "template_tok": seen.template_tok,
            "told_by": told,
        },
    )


def _cache_by_counters(seen: Evidence) -> tuple[int, int]:
    """Return hits and queries without the template's share; zeros where they are not known.

    How many requests the counters speak of follows from the prompts' mean length: those that were
    cut are among them, and foreign ones. Without a counter of queries, those that got a token.
    """
    lengths = [r.prompt_tok for r in seen.ok if r.prompt_tok]
    hits, queries = cache_use(seen.rounds)
    if hits is None or not lengths:
        return 0, 0
    mean_tok = sum(lengths) / len(lengths)
    if queries is None:
        queries = round(mean_tok * sum(r.first_token_ns is not None for r in seen.records))
    template_tok = seen.template_tok * queries / mean_tok
    return max(0, round(hits - template_tok)), max(0, round(queries - template_tok))


def prompts_not_distinct(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Prompts that were sent more than once."""
    hashes = Counter(r.prompt_sha256 for r in seen.records if r.prompt_sha256 is not None)
    repeated = sum(count - 1 for count in hashes.values())
    asked_same = any(not each.workload.distinct_prompts for each in seen.rounds)
    if not repeated and not asked_same:
        return
    yield doubt(
        "prompts_not_distinct",
        result.cell,
        f"{repeated} requests repeated a prompt: a prompt cache can answer them, so TTFT and "
        "rates may be better than fresh prompts would give. Leave --same-prompt away.",
        {"repeated": repeated, "distinct": len(hashes)},
    )


def prompt_length_off(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Prompts that came out longer or shorter than asked."""
    shares = [
        r.prompt_tok / r.asked_prompt_tok for r in seen.ok if r.prompt_tok and r.asked_prompt_tok
    ]
    if not shares:
        return
    middle = median(shares)
    evidence = {"got_over_asked": middle, "min": min(shares), "max": max(shares)}
    if abs(middle - 1) > LENGTH_SHARE:
        word = "longer" if middle > 1 else "shorter"
        yield doubt(
            "prompt_length_off",
            result.cell,
            f"prompts came out {100 * abs(middle - 1):.1f} % {word} than asked (the server's "
            "template and tokenizer): rates use what the server counted. Ask for the length "
            "that is wanted after the template.",
            evidence,
        )
    cut = sum(share < 1 - CUT_SHARE for share in shares)
    if cut:
        yield doubt(
            "truncated_prompt",
            result.cell,
            f"{cut} of {len(shares)} prompts reached the model at less than "
            f"{100 * (1 - CUT_SHARE):.0f} % of their length: the server cut them silently, so "
            "this is a shorter context than named. Give the server more context.",
            {**evidence, "cut": cut},
        )


def output_length(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Answers that are shorter or longer than asked."""
    ok = [r for r in seen.ok if r.asked_output_tok > 0 and r.output_tok > 0]
    asked = sum(r.asked_output_tok for r in ok)
    if not asked:
        return
    got = sum(r.output_tok for r in ok)
    evidence = {"asked_tok": asked, "got_tok": got, "finish": result.requests.finish}
    if got < (1 - LENGTH_SHARE) * asked:
        yield doubt(
            "output_short",
            result.cell,
            f"answers held {100 * got / asked:.1f} % of the tokens asked for: engines that stop "
            "early do less work, so compare only runs of equal length. Use an engine option that "
            "ignores the end of text.",
            evidence,
        )
    over = sum(r.output_tok > r.asked_output_tok for r in ok)
    if over:
        yield doubt(
            "output_over_cap",
            result.cell,
            f"{over} of {len(ok)} answers are longer than the limit sent: the server ignores "
            "max_tokens or counts otherwise. Rates use what it counted; check one answer by hand.",
            {**evidence, "over": over},
        )


def token_source(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Token counts that the server did not give."""
    estimated = sum(r.token_source in ESTIMATED for r in seen.ok)
    if not estimated:
        return
    yield doubt(
        "token_count_estimated",
        result.cell,
        f"{estimated} of {result.requests.ok} answers came without a token count: theirs is an "
        f"estimate ({result.tokens.source}), and every rate and TPOT with it. Let the server send "
        "usage (stream_options.include_usage).",
        {"estimated": estimated, "ok": result.requests.ok, "source": result.tokens.source},
    )


def usage_inconsistent(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Counts of the server that contradict each other."""
    causes: Counter[str] = Counter()
    for record in seen.ok:
        causes.update(_contradictions(record))
    if not causes:
        return
    yield doubt(
        "usage_inconsistent",
        result.cell,
        f"the server's counts contradict each other ({', '.join(causes)}): completion_tokens is "
        "used. Check one answer's usage by hand before trusting a rate.",
        {"causes": dict(causes)},
    )


def chunks_not_tokens(seen: Evidence, result: CellResult) -> Iterator[Doubt]:
    """Events that carry more or fewer than one token."""
    each = result.tokens.per_chunk
    if (
        each is None
        or abs(each - 1) <= CHUNK_SHARE
        or not any(r.workload.stream for r in seen.rounds)
    ):
        return
    yield doubt(
        "chunks_not_tokens",
        result.cell,
        f"an event carries {each:.2f} tokens on average: ICL is the gap between events, ITL an "
        "estimate per token, and TPOT divides by tokens. Compare TPOT, not ICL, between engines.",
        {"tokens_per_event": each},
    )


CHECKS = (
    prompt_cache_hit,
    prompts_not_distinct,
    prompt_length_off,
    output_length,
    token_source,
    usage_inconsistent,
    chunks_not_tokens,
)


def _contradictions(record: RequestRecord) -> Iterator[str]:
    if any("usage" in note for note in record.notes):
        yield "usage differs within the stream"
    if record.reasoning_tok is not None and record.reasoning_tok > record.output_tok:
        yield "more reasoning than output tokens"
    if record.prompt_tok is not None and (record.cached_tok or 0) > record.prompt_tok:
        yield "more cached than prompt tokens"
    counted = record.token_source not in ESTIMATED
    if counted and record.events >= 4 and 2 * record.output_tok < record.events:
        yield "fewer tokens than half the events"
