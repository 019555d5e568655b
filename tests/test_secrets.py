"""Keys and prompts: searched for in everything that a run writes and says."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from concbench.cli.main import main
from tests.cases.play import error_page, playing, stream
from tests.load.server import serving
from tests.servers import reference_server

SRC = Path(__file__).parents[1] / "src" / "concbench"
KEY = "sk-5ecret-that-nobody-may-see"
OPTIONS = ["--levels", "2", "--rounds", "2", "--warmup", "0", "--output-tokens", "12"]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", KEY)


def burst(url: str, folder: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "concbench", "burst", url, *OPTIONS, "--out", str(folder / "s"),
         "--json", str(folder / "result.json"), *options],
        capture_output=True, check=False, timeout=150,
    )  # fmt: skip


def everything(folder: Path, done: subprocess.CompletedProcess[bytes]) -> bytes:
    """All bytes that were written and said; tables as their text, since they are compressed."""
    parts = [done.stdout, done.stderr]
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            rows = duckdb.sql(f"select * from read_parquet('{path}')").fetchall()
            parts.append(repr(rows).encode())
        elif path.is_file():
            parts.append(path.read_bytes())
    return b"\n".join(parts)


def test_the_key_is_sent_and_written_nowhere(tmp_path: Path) -> None:
    with reference_server("--api-key", KEY, "--ttft-ms", "2", "--itl-ms", "1") as url:
        done = burst(url, tmp_path, "--api-key-env", "THE_KEY")
    assert done.returncode in (0, 4), done.stderr
    assert json.loads((tmp_path / "result.json").read_text())["cells"][0]["requests"]["ok"] == 4
    assert KEY.encode() not in everything(tmp_path, done)


def test_a_server_that_repeats_the_key_does_not_get_it_into_the_study(tmp_path: Path) -> None:
    def answer(sock: socket.socket, number: int) -> bool:
        error_page(sock, 500, f"Incorrect API key provided: {KEY}")
        return True

    with playing(lambda _: [], answer=answer) as play:
        done = burst(play.url, tmp_path, "--api-key-env", "THE_KEY")
        assert any(KEY.encode() in head for head in play.heads)
    written = everything(tmp_path, done)
    assert b"Incorrect API key provided: ***" in written
    assert KEY.encode() not in written


def test_a_refused_key_is_not_in_the_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with reference_server("--api-key", "another") as url:
        code = main(["burst", url, "--api-key-env", "THE_KEY", "--out", str(tmp_path / "s")])
    assert code == 3
    assert KEY not in "".join(capsys.readouterr())


def test_a_redirect_carries_no_key_to_another_host(tmp_path: Path) -> None:
    came: list[bytes] = []

    def elsewhere(sock: socket.socket, request: bytes, count: int) -> None:
        del sock, count
        came.append(request)

    with serving(elsewhere) as (host, port):
        location = f"Location: http://{host}:{port}/v1/chat/completions".encode()

        def answer(sock: socket.socket, number: int) -> bool:
            del number
            sock.sendall(b"HTTP/1.1 307 X\r\n%b\r\nContent-Length: 0\r\n\r\n" % location)
            return True

        with playing(lambda _: [], answer=answer) as play:
            done = burst(play.url, tmp_path, "--api-key-env", "THE_KEY")
    assert done.returncode == 4
    assert not came
    assert json.loads((tmp_path / "result.json").read_text())["cells"][0]["requests"]["errors"] == {
        "http_307": 4
    }


def test_private_leaves_no_text_of_prompts_or_answers(tmp_path: Path) -> None:
    secret = "The answer that is nobody's business"
    with playing(lambda _: stream([0.01 * k for k in range(12)])) as play:
        prompts = tmp_path / "prompts.txt"
        prompts.write_text("".join(f"{secret} number {k} is what we ask\n" for k in range(9)))
        (tmp_path / "w").mkdir()
        done = burst(play.url, tmp_path / "w", "--private", "--prompts", str(prompts))
        assert any(secret in str(body) for body in play.bodies)
    assert done.returncode in (0, 4), done.stderr
    assert secret.encode() not in everything(tmp_path / "w", done)


@pytest.mark.parametrize(("mode", "code"), [(0o600, None), (0o644, 2), (0o620, 2)])
def test_a_key_file_is_for_its_owner_alone(
    mode: int, code: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    path.chmod(mode)
    with reference_server("--api-key", KEY, "--ttft-ms", "2", "--itl-ms", "1") as url:
        got = main(
            ["burst", url, *OPTIONS, "--quiet", "--api-key-file", str(path),
             "--out", str(tmp_path / "s")]
        )  # fmt: skip
    said = capsys.readouterr().err
    assert got == code if code is not None else got in (0, 4), said
    assert KEY not in said
    assert ("chmod 600" in said) == (code is not None)


def test_no_option_takes_a_key_itself() -> None:
    from concbench.cli.main import COMMANDS, command_parser

    for name in COMMANDS:
        if name == "reference":  # a server for tests, whose key guards nothing
            continue
        options = {o for a in command_parser(name)._actions for o in a.option_strings}
        assert not options & {"--api-key", "--key", "--token", "--password"}, name


def test_nothing_that_is_read_can_run() -> None:
    """No pickle, no evaluation, no archives that are unpacked, no shell."""
    forbidden = re.compile(
        r"\b(import (pickle|marshal|shelve|dill|tarfile|zipfile)|from (pickle|marshal|shelve)|"
        r"yaml\.load|allow_pickle=True|shell=True|os\.system|extractall|unpack_archive)\b"
        r"|(?<![\w.])(eval|exec)\("
    )
    for path in SRC.rglob("*.py"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not forbidden.search(line), f"{path.name}:{number}: {line.strip()}"
