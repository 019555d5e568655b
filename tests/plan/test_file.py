import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concbench.errors import PlanError
from concbench.plan.file import load_plan, parse_plan
from concbench.plan.model import context_tok

GOOD = """\
[study]
name = "home cluster"
seed = 1234
rounds = 3

[lanes.gguf]
engine = "llamacpp"
model = "models/q5_k_m.gguf"
flags = { parallel = 8, ctx-size = 65536 }
env = { A = "x", B = 1 }
cwd = "engines"
notes = "from where this recipe comes"

[lanes.nvfp4]
engine = "vllm"
command = ["vllm", "serve", "m"]
reference = "recipes/nvfp4.toml"

[lanes.boxed]
engine = "vllm"
container = { runtime = "docker", image = "vllm/vllm-openai:v0.32.0", args = ["--model", "m"] }

[lanes.there]
url = "http://box:8000/v1"
model = "qwen"
stop = ["systemctl", "stop", "vllm"]
log = ["docker", "logs", "-f", "vllm"]

[workload]
output_tokens = 128
temperature = 0

[sweep]
lanes = ["gguf", "nvfp4"]
contexts = ["short", 5000, 32000]
concurrency = "auto"
oversubscribe = 1.5
links = ["5g"]

[sweep.vary.nvfp4]
gpu-memory-utilization = [0.80, 0.85]

[links.5g]
host = "10.0.0.2"
before = [["ip", "link", "set", "bond0", "up"]]
after = [["ip", "link", "set", "bond0", "down"]]
"""


def test_everything_is_kept():
    plan = parse_plan(GOOD)
    assert (plan.study.name, plan.study.seed, plan.study.rounds) == ("home cluster", 1234, 3)
    gguf, nvfp4, boxed, there = plan.lanes.values()
    assert [lane.name for lane in plan.lanes.values()] == ["gguf", "nvfp4", "boxed", "there"]
    assert [lane.way for lane in plan.lanes.values()] == ["flags", "command", "container", "url"]
    assert gguf.flags == {"parallel": 8, "ctx-size": 65536}
    assert gguf.env == {"A": "x", "B": 1}
    assert (gguf.cwd, gguf.notes) == ("engines", "from where this recipe comes")
    assert nvfp4.command == ["vllm", "serve", "m"]
    assert nvfp4.reference == "recipes/nvfp4.toml"
    assert boxed.container is not None
    assert (boxed.container.runtime, boxed.container.args) == ("docker", ["--model", "m"])
    assert (there.stop, there.log) == (
        ["systemctl", "stop", "vllm"],
        ["docker", "logs", "-f", "vllm"],
    )
    assert plan.workload.output_tokens == 128
    assert plan.sweep.contexts == ["short", 5000, 32000]
    assert [context_tok(context) for context in plan.sweep.contexts] == [50, 5000, 32000]
    assert plan.sweep.concurrency == "auto"
    assert plan.sweep.oversubscribe == 1.5
    assert plan.sweep.vary == {"nvfp4": {"gpu-memory-utilization": [0.80, 0.85]}}
    assert plan.links["5g"].before == [["ip", "link", "set", "bond0", "up"]]
    assert plan.links["5g"].after == [["ip", "link", "set", "bond0", "down"]]


def test_the_least_plan():
    plan = parse_plan('lanes.a.url = "http://h:1"')
    assert (plan.study.rounds, plan.workload.output_tokens) == (4, "auto")
    assert (plan.sweep.lanes, plan.sweep.contexts, plan.links) == ([], ["short"], {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rounds = 3", "ruonds = 3", r'4: study.ruonds: unknown key; did you mean "rounds"\?'),
        ("[study]", "[stuudy]", r'1: stuudy: unknown key; did you mean "study"\?'),
        ("flags = {", "flagz = {", r'9: lanes.gguf.flagz: unknown key; did you mean "flags"\?'),
        ("image =", "imge =", r'21: lanes.boxed.container.imge: unknown key; did you mean "image"'),
        ("before =", "befroe =", r'45: links.5g.befroe: unknown key; did you mean "before"'),
        ("rounds = 3", 'rounds = "x"', r'4: study.rounds: expected a whole number, got "x"$'),
        ("rounds = 3", "rounds = 0", r"4: study.rounds: expected a whole number >= 1, got 0$"),
        (
            "rounds = 3",
            "rounds = 3\nrounds_max = 2",
            r"5: study.rounds_max: expected at least rounds",
        ),
        ("temperature = 0", "temperature = nan", r"temperature: expected a finite number, got nan"),
        ("temperature = 0", "temperature = true", r"temperature: expected a number, got true"),
        (
            "temperature = 0",
            'content = "poem"',
            r"content: expected one of prose, .*, got \"poem\"",
        ),
        (
            "temperature = 0",
            'prompts = "p"\nsame_prompt = true',
            r"same_prompt and prompts exclude",
        ),
        (
            "temperature = 0",
            "extra_body = { a = [{ b = inf }] }",
            r"extra_body.a\[0\].b: expected a fin",
        ),
        (
            "output_tokens = 128",
            'output_tokens = "all"',
            r'whole number from 1 on or "auto", got "all"',
        ),
        ('{ A = "x", B = 1 }', "{ A = true }", r"10: lanes.gguf.env.A: .*, got true"),
        ('{ A = "x", B = 1 }', "[1]", r"10: lanes.gguf.env: expected a table of .*, got an array"),
        (
            "parallel = 8",
            "parallel = 2020-01-01",
            r"9: lanes.gguf.flags.parallel: .* a date or time",
        ),
        (
            'command = ["vllm", "serve", "m"]',
            'command = "vllm"',
            r"command: expected a command as a list",
        ),
        (
            'command = ["vllm", "serve", "m"]',
            "command = []",
            r"command: expected a command as a list",
        ),
        ("command =", 'url = "http://h"\ncommand =', r"lanes.nvfp4.url: .* not command and url$"),
        (
            "command =",
            "flags = { a = 1 }\ncommand =",
            r"lanes.nvfp4.command: .* not flags and command$",
        ),
        (
            'model = "models/q5_k_m.gguf"\n',
            "",
            r"6: lanes.gguf: expected one of model \(with flags\)",
        ),
        ('engine = "llamacpp"\n', "", r"7: lanes.gguf.model: .* needs engine = one of llamacpp"),
        ('engine = "llamacpp"', 'engine = "ollama"', r"7: lanes.gguf.engine: .* needs engine"),
        (
            'engine = "llamacpp"',
            'engine = "llama.cpp"',
            r'7: lanes.gguf.engine: .* mean "llamacpp"\?',
        ),
        ("http://box:8000/v1", "box:8000", r"lanes.there.url: expected http://HOST:PORT"),
        (
            'image = "vllm/vllm-openai:v0.32.0",',
            "",
            r"lanes.boxed.container: the key image is missing",
        ),
        ('runtime = "docker"', 'runtime = "crio"', r'expected "docker" or "podman", got "crio"'),
        (
            '["gguf", "nvfp4"]',
            '[\n"gguf",\n"nvfp5"]',
            r'36: sweep.lanes\[1\]: there is no lane "nvfp5"; did',
        ),
        ('["gguf", "nvfp4"]', '["gguf", "gguf"]', r'sweep.lanes\[1\]: "gguf" is listed twice'),
        ('links = ["5g"]', 'links = ["bond"]', r'there is no link "bond"; expected one of 5g'),
        ("[sweep.vary.nvfp4]", "[sweep.vary.nvfp]", r"sweep.vary.nvfp: there is no lane"),
        ("[sweep.vary.nvfp4]", "[sweep.vary.there]", r"its flags cannot be varied"),
        (
            "[0.80, 0.85]",
            "[]",
            r"41: sweep.vary.nvfp4.gpu-memory-utilization: expected at least one value",
        ),
        (
            "[0.80, 0.85]",
            "0.8",
            r"41: sweep.vary.nvfp4.gpu-memory-utilization: expected a table of flags",
        ),
        ("[0.80, 0.85]", "[[1]]", r"gpu-memory-utilization\[0\]: expected a scalar, got an array"),
        (
            '"short", 5000',
            '"shrt", 5000',
            r'contexts\[0\]: expected a list of "short" and .*, got "shrt"',
        ),
        (
            'concurrency = "auto"',
            "concurrency = [1, 0]",
            r'concurrency\[1\]: expected "auto" or .*, got 0',
        ),
        ("oversubscribe = 1.5", "oversubscribe = 0.5", r"oversubscribe: expected a number >= 1"),
        (
            '[["ip", "link", "set", "bond0", "up"]]',
            '["ip"]',
            r"before\[0\]: expected commands as lists",
        ),
        ("[lanes.gguf]", '[lanes."a/b"]', r'6: lanes."a/b": expected a name of letters'),
        (
            "[lanes.gguf]",
            '[lanes.gguf]\nname = "x"',
            r"7: lanes.gguf.name: unknown key; the name is",
        ),
        (
            "[workload]",
            '[workload]\nname = "x"',
            r"workload.name: unknown key; expected one of prompt_t",
        ),
        ("[study]", "[study", r"1: not valid TOML: Expected '\]'"),
        ("rounds = 3", "rounds = 3\nrounds = 4", r"5: not valid TOML: Cannot overwrite a value"),
    ],
)
def test_what_is_wrong_where_and_what_was_expected(old, new, message):
    assert GOOD.count(old) >= 1
    with pytest.raises(PlanError, match=r"^plan\.toml:\d+: ") as error:
        parse_plan(GOOD.replace(old, new, 1))
    assert re.search(message, str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "plan.toml:1: the plan is empty"),
        ("# nothing\n", "the plan is empty"),
        ("[lanes]\n", "lanes: no lane; expected at least one"),
        ('[study]\nname = "a"\n', "no lane"),
        ("lanes = 3", r"lanes: expected a table \[lanes\], got an integer"),
        ("lanes.a = 3", r"lanes.a: expected a table \[lanes.a\], got an integer"),
        ('[[lanes]]\nurl = "http://h"', "got an array"),
        ("x = [", "plan.toml:1: not valid TOML"),
        ("a = 1\nb = ", "plan.toml:2: not valid TOML"),
        ("x = " + "[" * 5000, "not valid TOML"),
        ("x = " + "1" * 5000, "not valid TOML"),
    ],
)
def test_not_a_plan(text, message):
    with pytest.raises(PlanError, match=message):
        parse_plan(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'concurrency = "auto"',
            "concurrency = [1, 2]",
            'sweep.oversubscribe: only concurrency = "auto" goes beyond the KV pool by it',
        ),
        (
            '"gguf", "nvfp4"]',
            '"gguf"]',
            'sweep.vary.nvfp4: sweep.lanes leaves out "nvfp4"; add it there',
        ),
        (
            "temperature = 0",
            'prompts = "p.txt"',
            "sweep.contexts: prompts from a file have lengths of their own",
        ),
        (
            "temperature = 0",
            'prompts = "p.txt"\ncontent = "code"',
            "workload.content: prompts from a file have their own content",
        ),
    ],
)
def test_a_key_that_would_do_nothing_is_refused(old, new, message):
    assert old in GOOD
    with pytest.raises(PlanError, match=re.escape(message)):
        parse_plan(GOOD.replace(old, new))


def test_the_prompts_length_is_the_context_where_none_is_given():
    text = GOOD.replace("temperature = 0", "prompt_tokens = 700")
    assert parse_plan(text).sweep.contexts == ["short", 5000, 32000]
    without = text.replace('contexts = ["short", 5000, 32000]\n', "")
    assert parse_plan(without).sweep.contexts == [700]


def test_files(tmp_path):
    path = tmp_path / "p.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_plan(path).path == str(path)
    path.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(PlanError, match=r"p\.toml:2: not UTF-8"):
        load_plan(path)
    with pytest.raises(PlanError, match="cannot read the plan: No such file"):
        load_plan(tmp_path / "absent.toml")
    with pytest.raises(PlanError, match="cannot read the plan"):
        load_plan(tmp_path / "nul\0byte")


def check(text):
    message = None
    try:
        assert parse_plan(text).lanes
    except PlanError as error:
        message = str(error)
    assert message is None or re.fullmatch(r"plan\.toml:\d+: .+", message)


@given(st.text(max_size=80))
def test_any_text(text):
    check(text)


VALUES = st.sampled_from(
    [
        "1",
        "-1",
        "0.5",
        "nan",
        "true",
        '"x"',
        '""',
        "[]",
        "[1]",
        '["a"]',
        "[[]]",
        "{}",
        "{ a = 1 }",
        "2020-01-01",
        "{ image = 3 }",
        '[["a"]]',
        '"auto"',
        "1e400",
        "99999999999999999999999",
    ]
)


@settings(max_examples=300)
@given(st.data())
def test_mutated_plans(data):
    lines = GOOD.split("\n")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        key, equals, _ = lines[at].partition(" = ")
        change = data.draw(st.sampled_from(["value", "drop", "double", "cut", "key"]))
        if change == "value" and equals:
            lines[at] = f"{key} = {data.draw(VALUES)}"
        elif change == "drop":
            lines[at] = ""
        elif change == "double":
            lines.insert(at, lines[at])
        elif change == "cut":
            lines[at] = lines[at][: data.draw(st.integers(0, len(lines[at])))]
        else:
            lines[at] = data.draw(st.text(max_size=5)) + lines[at]
    check("\n".join(lines))


KEYS = st.sampled_from(
    [
        "study",
        "lanes",
        "workload",
        "sweep",
        "links",
        "vary",
        "env",
        "flags",
        "container",
        "name",
        "url",
        "model",
        "engine",
        "contexts",
        "concurrency",
        "rounds",
        "before",
        "x",
        "extra_body",
    ]
)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.lists(KEYS, min_size=1, max_size=4), VALUES), max_size=4))
def test_any_keys_with_any_values(assignments):
    check("\n".join(f"{'.'.join(keys)} = {value}" for keys, value in assignments))
