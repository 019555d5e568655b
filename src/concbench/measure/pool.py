"""The requests of a closed loop, rendered ahead of the clock in their order of issue."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from concbench.clock import now_ns
from concbench.errors import UsageError
from concbench.load.script import Outgoing
from concbench.measure.campaign import Recorder
from concbench.plan.calibration import TOK_PER_WORD
from concbench.plan.prompts import Calibration, Prompt, make_prompts, word_count
from concbench.plan.schedule import ClosedLengths, output_lengths_closed

BATCH = 128
MOST_BYTES = 256 << 20
LONGER_TOK = (0, 4, 8, 16, 32)
"""What is added to a length that no estimated prompt can have, until one can."""


@dataclass(slots=True)
class Pool:
    """Requests that are ready, and how more of them are made.

    The first `workers` of them, one for each worker, have a share of the output length: the
    residual life of a request that is met at a random moment. `prompts` are all that were made,
    by number; `issued` counts those taken, `late` those that were rendered while the load was on.
    """

    recorder: Recorder
    workers: int
    output_tok: int
    seed: int
    prompts: list[Prompt] = field(default_factory=list)
    issued: int = 0
    late: set[int] = field(default_factory=set)
    _ready: deque[Outgoing] = field(default_factory=deque)
    _lengths: ClosedLengths | None = None
    _estimated_tok: int = 0
    _calibration: Calibration | None = None

    def prepare(self, need: int, budget_s: float) -> None:
        """Render `need` requests, or as many as the time and 256 MiB allow; at least one each.

        Prompts are token-exact where the server counts. Raises UsageError for a prompt length that
        is too small.
        """
        until_ns = now_ns() + int(budget_s * 1e9)
        size = 0
        while len(self.prompts) < need:
            if len(self.prompts) >= self.workers and (now_ns() > until_ns or size > MOST_BYTES):
                break
            # The first batch holds one for each worker, whatever it costs.
            n = max(min(BATCH, need - len(self.prompts)), self.workers - len(self.prompts))
            for prompt in self.recorder.prompts(n, self.seed):
                self._add(prompt)
                size += len(self._ready[-1].payload)
        self._learn_to_estimate()

    def top_up(self, least: int, budget_ns: int) -> None:
        """Render some more while the load is on, for at most that long, where few are left."""
        until_ns = now_ns() + budget_ns
        while len(self._ready) < least and now_ns() < until_ns:
            self._add_late()

    def take(self) -> Outgoing:
        """Return the next request; it is rendered now where none is left."""
        if not self._ready:
            self._add_late()
        self.issued += 1
        return self._ready.popleft()

    def left(self) -> list[Outgoing]:
        """Return the requests that are rendered and not taken, in their order."""
        return list(self._ready)

    @property
    def ready(self) -> int:
        """How many are rendered and not taken."""
        return len(self._ready)

    def _add(self, prompt: Prompt) -> None:
        number = len(self.prompts)
        self.prompts.append(prompt)
        ask, tag = self.recorder.session.ask, self.recorder.tag()
        said = prompt.messages or prompt.text
        self._ready.append(ask.render(said, self._length(number), number, tag))

    def _add_late(self) -> None:
        self.late.add(len(self.prompts))
        self._add(self._estimated())

    def _length(self, number: int) -> int:
        """Return the output length of a request by its number: frozen by the seed."""
        later = number - self.workers
        if self._lengths is None or later >= len(self._lengths.later_tok):
            count = max(1024, 2 * later)
            self._lengths = output_lengths_closed(self.workers, count, self.output_tok, self.seed)
        return self._lengths.first_tok[number] if later < 0 else self._lengths.later_tok[later]

    def _learn_to_estimate(self) -> None:
        """Find how prompts are made without asking the server, which would hold the load up."""
        asking, session = self.recorder.asking, self.recorder.session
        if asking.same_prompt or asking.file_prompts:
            return
        shares = [
            (prompt.tok - session.template_tok) / max(1, word_count(prompt.text))
            for prompt in self.prompts
            if prompt.exact and prompt.tok is not None
        ]
        assumed = TOK_PER_WORD[asking.content]  # type: ignore[index]
        self._calibration = session.calibration or Calibration(
            template_tok=session.template_tok,
            tok_per_word=sum(shares) / len(shares) if shares else assumed,
        )
        for more_tok in LONGER_TOK:
            self._estimated_tok = asking.prompt_tok + more_tok
            try:
                self._make()
            except UsageError:
                continue
            return
        self._estimated_tok = 0  # Prompts are used again where not even that helps.

    def _estimated(self) -> Prompt:
        asking = self.recorder.asking
        if asking.file_prompts:
            return self.recorder.prompts(1, self.seed)[0]
        if asking.same_prompt or not self._estimated_tok:
            return self.prompts[len(self.prompts) % max(1, self.issued)]
        prompt = self._make()
        self.recorder.session.next_prompt += 1
        return prompt

    def _make(self) -> Prompt:
        asking, session = self.recorder.asking, self.recorder.session
        return make_prompts(
            1,
            self._estimated_tok,
            asking.content,  # type: ignore[arg-type]
            self.seed,
            session.next_prompt,
            calibration=self._calibration,
        )[0]
