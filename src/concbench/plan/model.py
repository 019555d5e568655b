"""What a plan file says, typed: every table of it is a Struct of the same name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from concbench.plan.content import ContentKind

SHORT_TOK = 50
"""What the context `"short"` stands for."""

ENGINES = (
    "llamacpp",
    "vllm",
    "sglang",
    "llama-swap",
    "ollama",
    "trtllm",
    "tgi",
    "lmstudio",
    "openai",
)
"""The engines that a lane may name."""

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Concurrency = Annotated[int, Meta(ge=1, le=65_536)]
Argv = Annotated[list[Text], Meta(min_length=1)]


def _short_only() -> list[int | Literal["short"]]:
    """Return the contexts of a sweep that names none."""
    return ["short"]


class StudyPlan(Struct, frozen=True, kw_only=True):
    """The table `[study]`."""

    name: Text = "study"
    seed: Annotated[int, Meta(ge=0)] = 0
    rounds: Count = 4
    rounds_max: Count | None = None
    notes: str | None = None


class ContainerPlan(Struct, frozen=True, kw_only=True):
    """How a container is started. `args` go to the entry point, `options` to the runtime."""

    image: Text
    runtime: Literal["docker", "podman"] = "docker"
    args: list[str] = []
    options: list[str] = []
    name: Text | None = None
    port: Annotated[int, Meta(ge=1, le=65_535)] | None = None


class LanePlan(Struct, frozen=True, kw_only=True):
    """The table `[lanes.NAME]`: an engine, a model and a recipe.

    Exactly one way to get at it: `model` with `flags` (we start the engine), `command`, `url`
    (it runs already) or `container`. Beside the last three, `model` is the name to ask for.
    `reference` is a recipe file whose flags this lane must carry; `stop` and `log` are the
    commands that stop it and print its log, for lanes that are not our child.
    """

    name: str = ""
    engine: str | None = None
    model: Text | None = None
    flags: dict[str, Any] = {}
    command: Argv | None = None
    url: Text | None = None
    container: ContainerPlan | None = None
    env: dict[str, str | int | float] = {}
    cwd: Text | None = None
    reference: Text | None = None
    stop: Argv | None = None
    log: Argv | None = None
    notes: str | None = None

    @property
    def way(self) -> Literal["flags", "command", "url", "container"]:
        """How the lane is started or reached."""
        if self.command is not None:
            return "command"
        if self.url is not None:
            return "url"
        return "flags" if self.container is None else "container"


class WorkloadPlan(Struct, frozen=True, kw_only=True):
    """The table `[workload]`: what every cell asks for unless its axis says otherwise."""

    prompt_tokens: Count | None = None
    output_tokens: Count | Literal["auto"] = "auto"
    temperature: Annotated[float, Meta(ge=0, le=100)] = 0.0
    content: ContentKind = "prose"
    prompts: Text | None = None
    same_prompt: bool = False
    endpoint: Literal["chat", "completions"] = "chat"
    stream: bool = True
    ignore_eos: bool = True
    timeout_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    inactivity_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    extra_body: dict[str, Any] = {}


class SweepPlan(Struct, frozen=True, kw_only=True):
    """The table `[sweep]`: the axes of the matrix.

    `lanes` and `links` name tables; no `lanes` means all of them. `concurrency` is `"auto"`
    (from the KV pool, then `oversubscribe` times beyond it) or a list. `vary` is
    {lane: {flag: values}}: the lane is started anew for each combination.
    """

    lanes: list[Text] = []
    contexts: Annotated[list[Count | Literal["short"]], Meta(min_length=1)] = field(
        default_factory=_short_only
    )
    concurrency: Annotated[list[Concurrency], Meta(min_length=1)] | Literal["auto"] = "auto"
    oversubscribe: Annotated[float, Meta(ge=1, le=100)] = 1.5
    links: list[Text] = []
    vary: dict[str, dict[str, list[Any]]] = {}


class LinkPlan(Struct, frozen=True, kw_only=True):
    """The table `[links.NAME]`. `before` and `after` are commands, shown and confirmed first."""

    name: str = ""
    host: Text | None = None
    before: list[Argv] = []
    after: list[Argv] = []
    notes: str | None = None


class Plan(Struct, frozen=True, kw_only=True):
    """The whole file. `path` is what it was read from, for messages and relative paths."""

    path: str
    study: StudyPlan = StudyPlan()
    lanes: dict[str, LanePlan]
    workload: WorkloadPlan = WorkloadPlan()
    sweep: SweepPlan = SweepPlan()
    links: dict[str, LinkPlan] = {}


def context_tok(context: int | str) -> int:
    """Return the prompt tokens of a context, `"short"` included."""
    return SHORT_TOK if isinstance(context, str) else context
