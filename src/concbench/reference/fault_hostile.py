"""Faults of a server, or of what stands before it, that means harm or is badly broken. Pure."""

from __future__ import annotations

from dataclasses import replace

from concbench.reference.parts import Part, Scene, Transform, number

_ENDLESS_HEAD_BYTES = 2 << 20
_DEEP = 100_000
_ODD_USAGE = (
    b'data: {"choices":[],"usage":{"prompt_tokens":-1,"completion_tokens":"7",'
    b'"total_tokens":1e400}}\n\ndata: {"choices":[],"usage":[]}\n\n'
    b'data: {"choices":{},"usage":{"completion_tokens":99999999999999999999}}\n\n'
)


def endless_head(_scene: Scene, argument: str) -> list[Part]:
    """Header lines without end: `argument` (2,097,152) bytes, no blank line, nothing more."""
    line = b"X-More: " + b"m" * 1014 + b"\r\n"
    count = number(argument, _ENDLESS_HEAD_BYTES, least=1024) // len(line)
    return [Part("raw", b"HTTP/1.1 200 OK\r\n" + line * count, framed=True)]


def drip(_scene: Scene, argument: str) -> Transform:
    """Everything leaves byte by byte, `argument` (1) ms apart."""
    gap_ns = number(argument, 1) * 1_000_000

    def transform(parts: list[Part]) -> list[Part]:
        return [piece for part in parts for piece in _bytes_of(part, gap_ns)]

    return transform


def _bytes_of(part: Part, gap_ns: int) -> list[Part]:
    data = part.data or b""
    if len(data) < 2:
        return [part]
    pieces = [Part("raw", data[k : k + 1], wait_ns=gap_ns, framed=True) for k in range(len(data))]
    pieces[-1] = replace(part, data=data[-1:], wait_ns=gap_ns, framed=True)
    pieces[0].wait_ns = part.wait_ns
    return pieces


def two_lengths(_scene: Scene, argument: str) -> Transform:
    """A second length, `argument` (3), that contradicts how the body is framed."""
    line = f"Content-Length: {number(argument, 3)}\r\n".encode()
    return _with_head_line(line)


def encoded(_scene: Scene, argument: str) -> Transform:
    """The head names a compression, `argument` (br), that the body does not have."""
    return _with_head_line(f"Content-Encoding: {argument or 'br'}\r\n".encode())


def _with_head_line(line: bytes) -> Transform:
    def transform(parts: list[Part]) -> list[Part]:
        return [
            replace(p, data=(p.data or b"")[:-2] + line + b"\r\n") if p.kind == "head" else p
            for p in parts
        ]

    return transform


def odd_usage(_scene: Scene, _argument: str) -> Transform:
    """Usage with a negative count, a text, an infinity, a list and a number beyond 64 bits."""
    return _before_usage(_ODD_USAGE)


def deep_json(_scene: Scene, argument: str) -> Transform:
    """An event nested `argument` (100,000) deep."""
    depth = number(argument, _DEEP, least=1)
    return _before_usage(b'data: {"choices":' + b"[" * depth + b"]" * depth + b"}\n\n")


def _before_usage(extra: bytes) -> Transform:
    def transform(parts: list[Part]) -> list[Part]:
        out: list[Part] = []
        for part in parts:
            out += [Part("event", extra), part] if part.kind == "usage" else [part]
        return out

    return transform
