"""Recipe files: the flags that make a lane what it claims to be, and what a lane lacks of them.

A recipe is a TOML file with `engine`, `[flags]`, `[env]` and `notes`; see the guide on recipes.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from concbench.engines.reading import number, truth
from concbench.engines.registry import ENGINES
from concbench.errors import PlanError
from concbench.serve.words import named

ANY_VALUE = "*"
"""As a flag's value in a recipe: it must be set, to whatever."""


class RecipeFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a recipe file says. `version` is the engine's release that it was made for."""

    engine: Annotated[str, Meta(min_length=1)]
    flags: dict[str, Any]
    env: dict[str, str | int | float] = {}
    version: str | None = None
    notes: str | None = None


class Gap(Struct, frozen=True, kw_only=True):
    """One thing that a recipe asks for and a lane does not carry. `got` None: it is missing."""

    kind: Literal["missing", "different"]
    where: Literal["flag", "env"]
    name: str
    wanted: Any
    got: Any = None

    @property
    def told(self) -> str:
        """The gap in words."""
        name = f"--{self.name}" if self.where == "flag" else self.name
        if self.kind == "missing":
            shown = "" if self.wanted in (True, ANY_VALUE) else f" = {_shown(self.wanted)}"
            return f"{name}{shown} is missing"
        return f"{name} is {_shown(self.got)} instead of {_shown(self.wanted)}"


def load_recipe(path: Path) -> RecipeFile:
    """Read a recipe. Raises PlanError: file, key, what was expected."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PlanError(f"{path}: cannot read the recipe: {reason}") from None
    try:
        recipe = msgspec.convert(data, RecipeFile)
    except msgspec.ValidationError as error:
        raise PlanError(f"{path}: {_in_words(str(error), data)}") from None
    if recipe.engine not in ENGINES:
        near = difflib.get_close_matches(recipe.engine, ENGINES, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(ENGINES)}"
        raise PlanError(f"{path}: engine: unknown engine {recipe.engine!r}: {hint}")
    return recipe


def gaps(recipe: RecipeFile, flags: Mapping[str, Any], env: Mapping[str, str]) -> list[Gap]:
    """Return what a lane lacks of a recipe. `flags` are by canonical names, as `named` gives them.

    Values are the same when they read the same: `0.9` and `0.90`, `true` and `True`, JSON objects
    with the same keys.
    """
    wild = {name: value for name, value in recipe.flags.items() if value == ANY_VALUE}
    any_of = set(named(wild, recipe.engine))
    wanted_env = {name: str(value) for name, value in recipe.env.items()}
    return [
        *_lacking("flag", named(recipe.flags, recipe.engine), flags, any_of),
        *_lacking("env", wanted_env, env, {k for k, v in wanted_env.items() if v == ANY_VALUE}),
    ]


def _lacking(
    where: Literal["flag", "env"],
    wanted: Mapping[str, Any],
    got: Mapping[str, Any],
    any_of: Collection[str],
) -> list[Gap]:
    found: list[Gap] = []
    for name, value in wanted.items():
        if name not in got:
            found.append(Gap(kind="missing", where=where, name=name, wanted=value))
        elif name not in any_of and not same_value(value, got[name]):
            found.append(Gap(kind="different", where=where, name=name, wanted=value, got=got[name]))
    return found


def same_value(a: Any, b: Any) -> bool:  # noqa: ANN401 - a flag's value
    """Return whether two values of a flag mean the same."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_value, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return truth(a) is truth(b) and truth(a) is not None
    left, right = number(a), number(b)
    if left is not None and right is not None:
        return left == right
    return str(a).strip().lower() == str(b).strip().lower()


def _shown(value: Any) -> str:  # noqa: ANN401 - a flag's value
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value).decode()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _in_words(message: str, data: Mapping[str, Any]) -> str:
    """Return msgspec's message in words that say what a recipe holds."""
    fields = [field.name for field in msgspec.structs.fields(RecipeFile)]
    unknown = [key for key in data if key not in fields]
    if unknown:
        near = difflib.get_close_matches(unknown[0], fields, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected {', '.join(fields)}"
        return f"{unknown[0]}: unknown key; {hint}"
    missing = [key for key in ("engine", "flags") if key not in data]
    if missing:
        return f"the key {missing[0]} is missing; a recipe has {', '.join(fields)}"
    return message
