"""What a round keeps, and that rounds leave nothing behind."""

from __future__ import annotations

import gc
import struct
import tracemalloc

from concbench.domain import Cell, Round, Workload
from concbench.load.generator import RawRound
from concbench.load.log import ReadLog
from concbench.load.stream import RawRequest
from concbench.measure.digest import digest
from tests.measure.test_digest import DONE, FINISH, HEAD, OFFSET, chunk, token, usage

MOST_BYTES_A_TOKEN_EVENT = 64
REQUESTS, TOKENS = 40, 500


def raw_round(requests: int = REQUESTS, tokens: int = TOKENS) -> RawRound:
    """A round as a generator leaves it: a read a token, its payload partly in the file."""
    log, at_ns = ReadLog(), 1_000_000_000
    closing = chunk(FINISH) + chunk(usage(5, tokens)) + chunk(DONE) + b"0\r\n\r\n"
    reads = [HEAD, *[chunk(token("x"))] * tokens, closing]
    for read in reads:
        for number in range(requests):
            at_ns += 1000
            log.request.append(number)
            log.user_ns.append(at_ns + 500)
            log.size.append(len(read))
            log.payload += read
            log.kernel += struct.pack("=qq", *divmod(OFFSET + at_ns, 1_000_000_000))
    log.spill()
    made = [
        RawRequest(n, n, -1, True, tokens, 1, sent_ns=1, end_ns=at_ns, ending="complete")
        for n in range(requests)
    ]
    return RawRound("kernel", "", log, made, 1, at_ns, [(1, OFFSET)])


def parsed(raw: RawRound) -> Round:
    return digest(
        raw,
        round_id="r",
        cell=Cell(cell="c", lane="l", concurrency=REQUESTS, context_tok=5),
        index=0,
        phase="measured",
        workload=Workload(prompt_tokens=5, output_tokens=TOKENS, seed=0, arrival="burst"),
        prompts=[],
    )


def test_a_round_keeps_at_most_64_bytes_a_token_event() -> None:
    parsed(raw_round(2, 10))  # what is imported and cached on the way does not count
    tracemalloc.start()
    raw = raw_round()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    round_ = parsed(raw)
    del raw
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(round_.events) == REQUESTS * TOKENS
    # `before` still holds the log, 32 bytes a read, which is gone now.
    kept = after - before + 32 * REQUESTS * (TOKENS + 2)
    assert kept / len(round_.events) <= MOST_BYTES_A_TOKEN_EVENT


def test_twenty_rounds_leave_nothing_behind() -> None:
    sizes = []
    tracemalloc.start()
    for _ in range(20):
        parsed(raw_round(8, 60))
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[-1] - sizes[4] < 20_000, sizes
