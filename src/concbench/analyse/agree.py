"""Whether client and server agree, and which of them the headline is taken from."""

from __future__ import annotations

from typing import Final

from concbench.analyse.evidence import Evidence

DISAGREE_PCT: Final = 1.0


def agreement_pct_of(seen: Evidence) -> float | None:
    """Return 100 · (client − server) ÷ server; None unless the ledger balances.

    Over the same stretch where a counter moves at every step, over whole rounds (their tokens)
    where it moves only when a request ends.
    """
    book = seen.books.ledger
    if not book.generated or not seen.books.balanced:
        return None
    known = [item for item in seen.agreed if item is not None]
    if known:
        client = sum(item.client_tok_per_s for item in known)
        server = sum(item.server_tok_per_s for item in known)
        return 100 * (client - server) / server if server > 0 else None
    return 100 * (book.received - book.generated) / book.generated


def edge_pct(seen: Evidence) -> float:
    """Return by how much the two may differ for the edges of the stretch alone."""
    known = [item.edge for item in seen.agreed if item is not None]
    return 100 * max(known, default=0.0)


def disagrees(seen: Evidence, agreement_pct: float | None) -> bool:
    """Whether the two differ by more than 1 % and the edges explain."""
    if agreement_pct is None or all(item is None for item in seen.agreed):
        return False
    return abs(agreement_pct) > DISAGREE_PCT + edge_pct(seen)
