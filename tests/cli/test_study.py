from concbench.cli.compare import compared
from concbench.cli.study import result_of
from concbench.report.reproduce import command_lines
from tests.cli.studies import a_round, create

ARGV = ["sweep", "plan.toml", "--out", "s", "--ceiling", "--html=page.html"]


def swept(folder):
    lanes = {"a": {}, "b": {}}
    with create(folder, lanes, argv=ARGV, seed=9, plan={"plan": {"study": {}}}) as writer:
        for place in range(6):
            writer.write_round(a_round(place, "ab"[place % 2], 50.0, level=1))
        writer.finish()
    return folder


def test_a_sweep_is_repeated_by_its_own_command(tmp_path):
    study = swept(tmp_path / "s")
    expected = (
        f"# the plan as it was run: {study}/study.json, key `plan`",
        "concbench sweep plan.toml --ceiling --html=page.html --seed 9",
    )
    assert command_lines(result_of(study)) == expected
    assert command_lines(compared([study], [])) == expected


def test_keys_and_passwords_are_not_repeated(tmp_path):
    argv = ["find", "http://me:secret@box:8000", "--api-key", "sk-1"]
    with create(tmp_path / "s", {"a": {}}, command="find", argv=argv) as writer:
        writer.write_round(a_round(0, "a", 50.0, level=1))
        writer.finish()
    (line,) = command_lines(result_of(tmp_path / "s"))
    assert line == "concbench find 'http://***@box:8000' --api-key '***' --seed 1"
