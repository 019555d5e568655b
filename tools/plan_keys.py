"""What each key of a plan file means; that every key has a meaning is checked by a test."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from concbench.plan import model

TABLES: dict[str, type[Struct]] = {
    "[study]": model.StudyPlan,
    "[lanes.NAME]": model.LanePlan,
    "[lanes.NAME.container]": model.ContainerPlan,
    "[workload]": model.WorkloadPlan,
    "[sweep]": model.SweepPlan,
    "[links.NAME]": model.LinkPlan,
}
"""Table of the file -> the Struct that it becomes."""

MEANINGS: dict[str, dict[str, str]] = {
    "[study]": {
        "name": "what the study is called",
        "seed": "seed of prompts, lengths and order: the same seed asks for the same",
        "rounds": "rounds a cell",
        "rounds_max": "go on beyond `rounds` until the interval is within 1 %, at most so many",
        "notes": "text, kept with the study",
    },
    "[lanes.NAME]": {
        "engine": f"one of {', '.join(model.ENGINES)}; needed where the engine is started here",
        "model": "file or name of the model; beside `command`, `url`, `container` what to ask for",
        "flags": "flags of the engine, in any of its spellings; the engine is started here",
        "command": "the whole command line that starts the engine, as a list of words",
        "url": "base URL of a server that runs already",
        "container": "a container to start, as a table of its own",
        "env": "environment variables of the engine",
        "cwd": "working folder of the engine",
        "reference": "recipe file whose flags this lane must carry",
        "stop": "command that stops a server which is not our child",
        "log": "command that prints the log of such a server",
        "notes": "text, such as from where the recipe comes",
    },
    "[lanes.NAME.container]": {
        "image": "image, with its tag",
        "runtime": "`docker` or `podman`",
        "args": "words for the image's entry point",
        "options": "words for the runtime, such as `--gpus=all`",
        "name": "name of the container; otherwise one is made",
        "port": "port inside the container, where it is not the engine's own",
    },
    "[workload]": {
        "prompt_tokens": "length of the prompts where no contexts are given; with `prompts`, what "
        "they count as for the KV pool",
        "output_tokens": "length of the answers, or `auto`: enough steps for the steady window",
        "temperature": "sampling temperature",
        "content": "what made prompts are about: prose, code, json, repetition, words; not with "
        "`prompts`",
        "prompts": "file of prompts, one a line, or JSON Lines; they stand instead of contexts",
        "same_prompt": "the same prompt for all requests: a prompt cache may answer",
        "endpoint": "`chat` or `completions`",
        "stream": "stream the answers; without it there is no TTFT",
        "ignore_eos": "ask the engine to go on to the full length, where it can",
        "timeout_s": "total time a request may take",
        "inactivity_s": "how long a request may get no byte before it is cut",
        "extra_body": "fields added to every request's body",
    },
    "[sweep]": {
        "lanes": "lanes to measure, by name; all of them where it is left out",
        "contexts": 'prompt lengths in tokens; `"short"` is 50',
        "concurrency": "levels as a list, or `auto`: from the KV pool, then beyond it",
        "oversubscribe": "how far beyond the KV pool `auto` goes; not beside a list",
        "links": "links over which to measure, by name",
        "vary": "by lane, flags with a list of values each: the lane is started anew for each",
    },
    "[links.NAME]": {
        "host": "the machine at the other end; the link itself is measured where it answers",
        "before": "commands that set the link up, shown and confirmed before they run",
        "after": "commands that take it down again",
        "notes": "text",
    },
}


def keys_of(table: str) -> list[str]:
    """Return the keys that a table may hold; the name of a lane or link is its table's own."""
    fields = list(TABLES[table].__struct_fields__)
    return [
        key for key in fields if key != "name" or table in ("[study]", "[lanes.NAME.container]")
    ]


def default_of(table: str, key: str) -> str:
    """Return a key's default as TOML would have it, `required` or nothing."""
    from msgspec import NODEFAULT
    from msgspec.structs import fields

    field = next(each for each in fields(TABLES[table]) if each.name == key)
    value: Any = field.default
    if value is NODEFAULT and field.default_factory is NODEFAULT:
        return "required"
    if value is NODEFAULT:
        value = field.default_factory()  # type: ignore[operator]
    if value is None or value in ([], {}):
        return ""
    text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
    return f"`{text}`"


def page() -> str:
    """Return the reference page of the plan file."""
    rows = [
        "# Plan file\n",
        "TOML. A key that is not listed here is refused, with the nearest one that is.\n",
    ]
    for table, meanings in MEANINGS.items():
        rows += [f"## {table}\n", "| key | default | is |", "|---|---|---|"]
        rows += [
            f"| `{key}` | {default_of(table, key)} | {text} |" for key, text in meanings.items()
        ]
        rows.append("")
    return "\n".join(rows)
