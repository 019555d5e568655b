import subprocess

import pytest
from msgspec.structs import replace

from concbench.report.reproduce import command_lines, quoted
from tests.report.conftest import burst


@pytest.mark.parametrize(
    "word",
    [
        "plain",
        "a b",
        "two  blanks",
        " ends ",
        "a\u202eb",
        "it's \\ \x1b[31m",
        "\u202e7f",
        "line\nbreak",
        "größe",
        "zero\u200b'",
        "",
    ],
)
def test_a_shell_reads_back_what_was_given(word):
    shown = quoted(word)
    assert shown.isprintable()
    command = ["bash", "-c", f"printf %s {shown}"]
    done = subprocess.run(command, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stdout.decode() == word


def test_a_model_of_hidden_characters_can_be_asked_for_again():
    result = burst()
    facts = replace(next(iter(result.targets.values())), model="a\u202eb")
    result.targets = dict.fromkeys(result.targets, facts)
    assert "--model $'a\\u202eb'" in command_lines(result)[0]


def test_the_command_that_was_run_is_repeated():
    result = burst()
    argv = ["sweep", "my plan.toml"]
    result.payload = {"ran": [{"argv": argv, "seed": 7, "plan": "s/study.json, key `plan`"}]}
    assert command_lines(result) == (
        "# the plan as it was run: s/study.json, key `plan`",
        "concbench sweep 'my plan.toml' --seed 7",
    )
    argv += ["--seed=3"]
    result.payload["ran"][0]["plan"] = None
    assert command_lines(result) == ("concbench sweep 'my plan.toml' --seed=3",)
