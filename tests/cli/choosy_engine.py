"""The reference server, which refuses prompts from 80 tokens on as too long while FILE exists.

python choosy_engine.py FILE reference-options…
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from concbench.reference import main, order

FROM_TOK = 80


def run(argv: list[str]) -> int:
    file, *rest = argv
    sizes = order._sizes

    def choosy(state: Any, body: Any, prompt_tok: int, *, chat: bool) -> Any:
        if prompt_tok >= FROM_TOK and Path(file).exists():
            facts = {"prompt_tok": prompt_tok, "output_tok": 8, "context_tok": FROM_TOK}
            return order.refusal(state.persona, "too_long", facts)
        return sizes(state, body, prompt_tok, chat=chat)

    order._sizes = choosy
    return main.run(rest)


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
