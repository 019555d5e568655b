from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager

import pytest
import trustme

from concbench.errors import UsageError
from concbench.serve import http
from concbench.serve.http import Access, Http, NoAnswer
from concbench.serve.ports import free_port
from tests.serve.server import Reply, serving

KEY = "sk-not-to-be-seen"


@contextmanager
def raw(reply: bytes | None):
    """Accept one connection, answer these bytes (None: never) and close."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            sock, _ = server.accept()
            with sock:
                sock.recv(65536)
                if reply is None:
                    done.wait(10)
                else:
                    sock.sendall(reply)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def test_get_and_post_carry_what_they_should():
    with serving(
        {"/base/a": Reply(body=[1], headers={"X-Thing": "y"}), "/base/b": Reply(201)}
    ) as s:
        client = Http(s.url + "/base/", Access(api_key=KEY))
        answer = client.get("/a")
        assert (answer.status, answer.body, answer.headers["x-thing"]) == (200, b"[1]", "y")
        assert client.post_json("/b", {"a": 1}).status == 201
    get, post = s.asked
    assert get.headers["authorization"] == f"Bearer {KEY}"
    assert get.headers["accept-encoding"] == "identity"
    assert json.loads(post.body) == {"a": 1}
    assert post.headers["content-type"] == "application/json"


def test_without_a_key_no_header_is_sent():
    with serving({"/": Reply()}) as s:
        Http(s.url).get("/")
    assert "authorization" not in s.asked[0].headers


def test_a_redirect_is_reported_and_not_followed():
    with (
        serving({"/": Reply()}) as other,
        serving({"/": Reply(307, b"", {"Location": other.url})}) as s,
    ):
        answer = Http(s.url, Access(api_key=KEY)).get("/")
    assert (answer.status, answer.headers["location"]) == (307, other.url)
    assert other.asked == []


@pytest.mark.parametrize("key", ["", "a\nb", "a\r\nX: y", "schlüssel\x00"])
def test_a_key_no_header_can_hold_is_refused_unseen(key):
    with pytest.raises(UsageError) as caught:
        Http("http://x", Access(api_key=key))
    assert key == "" or key not in str(caught.value)


def test_the_key_is_in_no_repr():
    access = Access(api_key=KEY)
    assert KEY not in repr(access) + repr(Http("http://x", access))


def test_the_key_is_cut_from_what_a_server_repeats():
    with serving({"/": Reply(401, {"error": {"message": f"bad key {KEY}"}})}) as s:
        client = Http(s.url, Access(api_key=KEY))
        assert client.excerpt(client.get("/")) == "bad key ***"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "wrapped"}}, "wrapped"),
        ({"object": "error", "message": "flat"}, "flat"),
        ({"error": "Model is overloaded"}, "Model is overloaded"),
        ({"detail": "Not Found"}, "Not Found"),
        (b"plain\n  text", "plain text"),
        ([1], "[1]"),
    ],
)
def test_what_a_server_said(body, said):
    with serving({"/": Reply(400, body)}) as s:
        client = Http(s.url)
        assert client.excerpt(client.get("/")) == said


def test_nobody_listens():
    answer = Http(f"http://127.0.0.1:{free_port()}").get("/")
    assert isinstance(answer, NoAnswer)
    assert (answer.status, answer.reason) == (0, "refused")


@pytest.mark.parametrize("host", ["nowhere.invalid", "a" * 70 + ".invalid"])
def test_no_such_host(host):
    answer = Http(f"http://{host}").get("/")
    assert isinstance(answer, NoAnswer)
    assert answer.reason == "no_such_host"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (None, "timeout"),
        (b"", "reset"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "not_http"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not_http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "cut"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "cut"),
        (b"HTTP/1.1 200 OK\r\n" + b"a" * 70000, "not_http"),
    ],
)
def test_broken_answers_are_values(reply, reason):
    with raw(reply) as url:
        answer = Http(url, Access(timeout_s=0.3)).get("/")
    assert isinstance(answer, NoAnswer)
    assert answer.reason == reason


def test_an_endless_body_is_cut_off(monkeypatch):
    monkeypatch.setattr(http, "MAX_BODY_BYTES", 100)
    with serving({"/": Reply(body=b"x" * 101)}) as s:
        answer = Http(s.url).get("/")
    assert isinstance(answer, NoAnswer)
    assert answer.reason == "cut"


def test_ipv6():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        server = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with server:
        got: list[bytes] = []

        def run() -> None:
            sock, _ = server.accept()
            with sock:
                got.append(sock.recv(65536))
                sock.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        thread = threading.Thread(target=run)
        thread.start()
        port = server.getsockname()[1]
        assert Http(f"http://[::1]:{port}").get("/").status == 204
        thread.join()
    assert f"Host: [::1]:{port}".encode() in got[0]


def test_tls_needs_a_known_authority(tmp_path, monkeypatch):
    authority = trustme.CA()
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    pem = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(pem))
    with serving({"/": Reply(body=b"in")}, tls=context) as s:
        unknown = Http(s.url).get("/")
        assert isinstance(unknown, NoAnswer)
        assert unknown.reason == "tls"
        assert Http(s.url, Access(ca=pem)).get("/").body == b"in"
        assert Http(s.url, Access(insecure=True)).get("/").body == b"in"
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert Http(s.url).get("/").body == b"in"


def test_a_ca_file_that_is_none(tmp_path):
    bad = tmp_path / "ca.pem"
    bad.write_text("no")
    for path in (bad, tmp_path / "missing.pem"):
        with pytest.raises(UsageError, match="--ca"):
            Http("https://x", Access(ca=path))
