import locale

import pytest

from concbench.cli.main import main
from tests.cli.studies import interleaved

MORE = {"a": {"model": "größe"}}
MARK = b"\xef\xbb\xbf"


@pytest.fixture
def study(tmp_path):
    return interleaved(tmp_path / "s", {"a": {1: 50.0, 2: 90.0}, "b": {1: 55.0}}, more=MORE)


def test_a_spreadsheet_reads_files_and_a_pipe_has_no_mark(
    study, tmp_path, capfdbinary, monkeypatch
):
    monkeypatch.setattr(locale, "getencoding", lambda: "ascii")
    path, folder = tmp_path / "cells.csv", tmp_path / "tables"
    assert main(["report", str(study), "--csv", str(path), "--csv-tables", str(folder)]) == 0
    files = [path, *folder.iterdir()]
    assert len(files) > 1
    for each in files:
        content = each.read_bytes()
        assert content.startswith(MARK)
        assert content.count(MARK) == 1
        content.decode("utf-8")
    assert "größe" in path.read_text(encoding="utf-8-sig")
    capfdbinary.readouterr()
    assert main(["report", str(study), "--csv", "-"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"corrections,")
