"""The reference pages of the documentation, generated from the code when the site is built.

An mkdocs hook (`hooks:` in mkdocs.yml): nothing generated is committed, so nothing can be stale.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from argparse import SUPPRESS, _SubParsersAction
from pathlib import Path
from typing import Any

import msgspec

from concbench import errors, result
from concbench.analyse import capacity, matrix_model, ratecapacity, speculation, steptime
from concbench.analyse.severity import FATAL_ABOVE, SEVERITY
from concbench.cli.main import COMMANDS, command_parser
from concbench.domain import Doubt, Estimate, Summary, TargetFacts
from concbench.measure.throughput import Throughput
from concbench.reference.main import options_parser
from concbench.report.definitions import DEFINITIONS
from concbench.report.doubts_text import ADVICE
from concbench.store.schema import data_dictionary

sys.path.insert(0, str(Path(__file__).parent))
import matrix_keys
import payload_keys
import plan_keys
import result_keys

KEYS = {**result_keys.RESULT, **matrix_keys.MATRIX, **payload_keys.PAYLOAD}
"""Structure -> key -> what it means, of every structure that the page shows."""


def commands() -> str:
    """Return a page with every command and option."""
    parts = ["# Commands\n"]
    for name, (_, line) in COMMANDS.items():
        parts.append(f"## concbench {name}\n\n{line[0].upper()}{line[1:]}.\n")
        parts += _options(parser_of(name))
    return "\n".join(parts)


def parser_of(name: str) -> Any:
    """Return the parser of a command; the reference server brings its own."""
    return options_parser() if name == "reference" else command_parser(name)


def _options(parser: Any, heading: str = "") -> list[str]:
    """Return a parser's description and options, those of its subcommands below."""
    parts = [f"### {heading}\n"] if heading else []
    parts += [f"{_cell(parser.description)}\n"] if parser.description else []
    below = [a for a in parser._actions if isinstance(a, _SubParsersAction)]
    for group in parser._action_groups:
        hidden = (SUPPRESS, "help")
        actions = [a for a in group._group_actions if a.help not in hidden and a.dest != "help"]
        actions = [action for action in actions if action not in below]
        if actions:
            parts.append("| | |\n|---|---|")
            parts += [f"| `{_cell(_invocation(a))}` | {_prose(_help(a))} |" for a in actions]
            parts.append("")
    for action in below:
        for word, inner in action.choices.items():
            parts += _options(inner, f"{parser.prog} {word}")
    return parts


def _invocation(action: Any) -> str:
    value = action.metavar or (("|".join(map(str, action.choices))) if action.choices else "")
    if not action.option_strings:
        return str(value or action.dest)
    takes_value = action.nargs != 0
    text = ", ".join(action.option_strings)
    return f"{text} {value or action.dest.upper()}" if takes_value and value else text


def _help(action: Any) -> str:
    return (action.help or "") % {"default": action.default, "prog": ""}


def _cell(text: str) -> str:
    """Return a text that is fit for a table's cell."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def _prose(text: str) -> str:
    return _cell(text).replace("<", "&lt;")


def doubts() -> str:
    """Return a page with every doubt: severity, effect, what to do."""
    rows = ["# Doubts\n", "| code | severity | what it means and what to do |", "|---|---|---|"]
    for code, severity in sorted(SEVERITY.items()):
        above = FATAL_ABOVE.get(code) if isinstance(FATAL_ABOVE, dict) else code in FATAL_ABOVE
        shown = f"{severity}, fatal above 1 % of requests" if above else severity
        rows.append(f"| `{code}` | {shown} | {_prose(_both(code))} |")
    return "\n".join(rows) + "\n"


def _both(code: str) -> str:
    return f"{ADVICE[code].effect} {ADVICE[code].action}"


def definitions() -> str:
    """Return a page with how each number is defined."""
    rows = ["# Definitions\n"]
    for known in DEFINITIONS.values():
        unit = f" ({known.unit})" if known.unit else ""
        rows.append(f"## {known.name}{unit}\n\n{known.text}\n\n`{known.formula}`\n")
    return "\n".join(rows)


_READING = """Strict JSON: what is not known is null, never NaN, Infinity or a guess. The unit is
at the end of a key's name where it has one; the column *unit* says it for all. *Estimate* and
*Summary* are in the unit of the key that holds them ("as keyed").
"""


def result_json() -> str:
    """Return a page with every key of the result JSON, structure by structure."""
    rows = ["# Result JSON\n", f"Schema `{result.SCHEMA}`.\n", _READING]
    structs = [s for _, s in inspect.getmembers(result, inspect.isclass) if _is_own(s)]
    tables = [s for _, s in inspect.getmembers(matrix_model, inspect.isclass) if _is_table(s)]
    payloads = [
        s
        for module in (capacity, ratecapacity, steptime, speculation)
        for s in _own_structs(module)
    ]
    for struct in [*structs, TargetFacts, Doubt, Estimate, Summary, *tables, *payloads, Throughput]:
        rows.append(f"## {struct.__name__}\n\n{inspect.getdoc(struct)}\n")
        rows += ["| key | type | unit | null when | meaning |", "|---|---|---|---|---|"]
        hints = typing.get_type_hints(struct)
        told = KEYS[struct.__name__]
        rows += [_key_row(key, hints[key], told[key]) for key in struct.__struct_fields__]
        rows.append("")
    return "\n".join(rows)


def _own_structs(module: Any) -> list[Any]:
    """Return the tables of a module's payload."""
    found = [s for _, s in inspect.getmembers(module, inspect.isclass)]
    return [s for s in found if issubclass(s, msgspec.Struct) and s.__module__ == module.__name__]


def _key_row(name: str, hint: Any, key: result_keys.Key) -> str:
    cells = (result_keys.unit_of(name, key) or "–", key.null or "never", key.meaning)
    return f"| `{name}` | `{_type(hint)}` | " + " | ".join(map(_prose, cells)) + " |"


def _is_own(struct: Any) -> bool:
    return issubclass(struct, msgspec.Struct) and struct.__module__ == result.__name__


def _is_table(struct: Any) -> bool:
    return issubclass(struct, msgspec.Struct) and struct.__module__ == matrix_model.__name__


def _type(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return re.sub(r"(typing|concbench\.\w+)\.", "", text).replace("|", "\\|")


def study_tables() -> str:
    """Return a page with the columns of a study's tables."""
    columns = ("table", "column", "type", "unit", "null", "meaning")
    rows = ["# Study tables\n", "| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    for row in data_dictionary():
        rows.append("| " + " | ".join(_prose(row[column]) for column in columns) + " |")
    return "\n".join(rows) + "\n"


def exit_codes() -> str:
    """Return a page with the tree of errors and their exit codes."""
    return f"# Errors and exit codes\n\n{inspect.getdoc(errors)}\n"


PAGES = {
    "commands": commands,
    "plan": plan_keys.page,
    "doubts": doubts,
    "definitions": definitions,
    "result": result_json,
    "tables": study_tables,
    "errors": exit_codes,
}


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site (called by mkdocs)."""
    from mkdocs.structure.files import File

    for name, make in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make()))
    return files
