"""The page server: one token, one host, one origin; whatever else is asked for gets nothing."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping

import pytest

from concbench.errors import PortTaken
from concbench.report.follow_server import Answer, FollowServer

SECRET = "what the site knows"


def site(path: str, query: Mapping[str, str]) -> Answer | None:
    if path == "tagged":
        return Answer(SECRET.encode(), "text/plain", tag='"one"')
    if path in ("", "again"):
        return Answer((SECRET + query.get("study", "")).encode(), "text/plain")
    return None


@pytest.fixture(scope="module")
def server() -> Iterator[FollowServer]:
    made = FollowServer(site)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.stop()
    thread.join(20)
    assert not thread.is_alive()


def ask(
    server: FollowServer, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        words = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=words)
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def test_the_token_opens_the_page(server: FollowServer) -> None:
    answer, text = ask(server, f"/{server.token}/")
    assert (answer.status, text) == (200, SECRET)
    assert ask(server, f"/{server.token}/again?study=a%20b")[1] == SECRET + "a b"


def test_the_token_is_long_and_new_each_time(server: FollowServer) -> None:
    other = FollowServer(site)
    other.stop()
    other.serve()
    assert len(server.token) >= 32
    assert other.token != server.token


def test_a_wrong_token_is_403_and_says_nothing(server: FollowServer) -> None:
    token = server.token
    wrong = ["", "state.json", "wrong/", f"{token}x/", f"{token[:-1]}/", f"%2e%2e/{token}/"]
    wrong += ["%C3%A9/", "/", token.swapcase() + "/", f"x?{token}", "x" * 60_000]
    for path in wrong:
        answer, text = ask(server, f"/{path}")
        assert answer.status == 403, path[:80]
        assert SECRET not in text


def test_a_path_below_the_token_that_is_not_there_is_404(server: FollowServer) -> None:
    for path in (f"/{server.token}", f"/{server.token}/nothing", f"/{server.token}/../again"):
        assert ask(server, path)[0].status == 404, path


def test_another_host_is_403_even_with_the_token(server: FollowServer) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1:1", "localhost", ""):
        answer, text = ask(server, f"/{server.token}/", Host=host)
        assert answer.status == 403, host
        assert SECRET not in text
    assert ask(server, f"/{server.token}/", Host=f"localhost:{server.port}")[0].status == 200


def test_another_origin_is_403_even_with_the_token(server: FollowServer) -> None:
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{server.port}"):
        answer, _ = ask(server, f"/{server.token}/", Origin=origin)
        assert answer.status == 403, origin
    own = f"http://127.0.0.1:{server.port}"
    answer, _ = ask(server, f"/{server.token}/", Origin=own)
    assert answer.status == 200
    assert answer.headers.get("Access-Control-Allow-Origin") is None


def test_two_host_headers_are_403(server: FollowServer) -> None:
    own = f"127.0.0.1:{server.port}"
    request = f"GET /{server.token}/ HTTP/1.1\r\nHost: {own}\r\nHost: evil\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(request.encode())
        assert b" 403 " in link.recv(4096).split(b"\r\n")[0]


def test_it_only_reads(server: FollowServer) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer, text = ask(server, f"/{server.token}/", method)
        assert answer.status == 501
        assert SECRET not in text
    answer, text = ask(server, f"/{server.token}/", "HEAD")
    assert (answer.status, text) == (200, "")


def test_no_method_says_more_than_403_without_the_token(server: FollowServer) -> None:
    for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "BREW"):
        answer, text = ask(server, "/wrong/", method)
        assert (answer.status, text) == (403, "forbidden\n")
        assert ask(server, f"/{server.token}/", method, Host="evil")[0].status == 403
    answer, text = ask(server, f"/{server.token}/", "POST")
    assert (text, answer.headers["Content-Type"]) == (
        "not implemented\n",
        "text/plain; charset=utf-8",
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(b"nonsense\r\n\r\n")
        assert b"html" not in link.recv(4096).lower()


def test_headers_keep_others_out(server: FollowServer) -> None:
    for path in (f"/{server.token}/", f"/{server.token}/nothing", "/wrong/"):
        headers = ask(server, path)[0].headers
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "Python" not in headers["Server"]


def test_what_has_not_changed_is_not_sent_again(server: FollowServer) -> None:
    path = f"/{server.token}/tagged"
    first, text = ask(server, path)
    assert (first.status, text) == (200, SECRET)
    again, nothing = ask(server, path, If_None_Match=first.headers["ETag"])
    assert (again.status, nothing) == (304, "")


def test_a_port_that_is_taken_is_named(server: FollowServer) -> None:
    with pytest.raises(PortTaken, match="--port"):
        FollowServer(site, server.port)


def test_it_listens_on_loopback_alone(server: FollowServer) -> None:
    own = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in own - {"127.0.0.1"}:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((str(address), server.port), timeout=5)


@pytest.mark.parametrize("target", ["http://[half", "{page}?" + "&".join("a=1" for _ in range(9))])
def test_a_target_that_is_none_is_403(server: FollowServer, target: str) -> None:
    page = f"/{server.token}/"
    with socket.create_connection(("127.0.0.1", server.port), 10) as sock:
        words = target.format(page=page), f"127.0.0.1:{server.port}"
        sock.sendall(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n".format(*words).encode()
        )
        assert sock.makefile("rb").readline() == b"HTTP/1.1 403 Forbidden\r\n"


def test_a_client_that_leaves_is_no_news(
    server: FollowServer, capfd: pytest.CaptureFixture[str]
) -> None:
    page = f"GET /{server.token}/ HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
    reset = b"\x01\0\0\0\0\0\0\0"
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", server.port), 10) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            sock.sendall(page * 50)
    # Still there, after every one of those was looked at.
    answer, _ = ask(server, f"/{server.token}/")
    assert answer.status == 200
    assert capfd.readouterr().err == ""
