"""A raw socket client and a server in a thread, for the tests of the known-truth server."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from concbench.reference.main import parse
from concbench.reference.server import Server


@dataclass
class Got:
    """One response, de-chunked; `complete` is False where the connection ended before it did."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        """The SSE data, parsed; `[DONE]` as that string."""
        out = []
        for block in self.body.decode().split("\n\n"):
            if block.startswith("data: "):
                data = block[6:]
                out.append(data if data == "[DONE]" else json.loads(data))
        return out

    def text(self) -> str:
        chunks = [e["choices"][0] for e in self.events() if e != "[DONE]" and e["choices"]]
        return "".join(
            c["delta"].get("content") or "" if "delta" in c else c["text"] for c in chunks
        )


class Client:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.buffer = b""

    def close(self) -> None:
        self.sock.close()

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: test", f"Content-Length: {len(data)}"]
        lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
        self.sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Got:
        self.send(method, path, body, **headers)
        return self.receive()

    def chat(self, **fields: Any) -> Got:
        headers = fields.pop("headers", {})
        return self.call("POST", "/v1/chat/completions", chat_body(**fields), **headers)

    def receive(self) -> Got:
        while b"\r\n\r\n" not in self.buffer:
            if not self._more():
                return Got(0, {}, self.buffer, complete=False)
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        if 100 <= status < 200:
            return self.receive()
        if headers.get("transfer-encoding") == "chunked":
            body, complete = self._chunked()
        elif "content-length" in headers:
            body, complete = self._sized(int(headers["content-length"]))
        else:
            while self._more():
                pass
            body, complete, self.buffer = self.buffer, True, b""
        return Got(status, headers, body, complete)

    def _more(self) -> bool:
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            return False
        self.buffer += data
        return bool(data)

    def _sized(self, size: int) -> tuple[bytes, bool]:
        while len(self.buffer) < size:
            if not self._more():
                return self.buffer, False
        body, self.buffer = self.buffer[:size], self.buffer[size:]
        return body, True

    def _chunked(self) -> tuple[bytes, bool]:
        body = bytearray()
        while True:
            while b"\r\n" not in self.buffer:
                if not self._more():
                    return bytes(body), False
            line, _, rest = self.buffer.partition(b"\r\n")
            size = int(line, 16)
            while len(rest) < size + 2:
                if not self._more():
                    return bytes(body), False
                rest = self.buffer.partition(b"\r\n")[2]
            body += rest[:size]
            self.buffer = rest[size + 2 :]
            if size == 0:
                return bytes(body), True


def chat_body(words: int = 3, max_tokens: int = 4, **fields: Any) -> dict[str, Any]:
    """A chat request of so many words; streamed, with usage."""
    content = " ".join(f"w{i}" for i in range(words))
    body = {
        "model": "reference",
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return {**body, **fields}


@contextlib.contextmanager
def serving(*argv: str) -> Iterator[Server]:
    """A server in a thread: 1 ms to the first token and 1 ms per token unless told otherwise."""
    server = Server(parse(["--ttft-ms", "1", "--itl-ms", "1", *argv]))
    server.listen()
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


@contextlib.contextmanager
def connected(*argv: str) -> Iterator[Client]:
    """A client of a server of its own."""
    with serving(*argv) as server:
        client = Client(server.port)
        try:
            yield client
        finally:
            client.close()


def truth(client: Client, query: str = "") -> list[dict[str, Any]]:
    """The records of all requests."""
    return list(client.call("GET", f"/truth{query}").json()["requests"])
