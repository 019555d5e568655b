"""TLS over the same receive path: the ciphertext is stamped, then decrypted in memory."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from concbench.clock import now_ns
from concbench.errors import UsageError
from concbench.load.script import Script
from concbench.load.stream import Host, Peer, Stream


def context(ca_file: Path | None = None, *, insecure: bool = False) -> ssl.SSLContext:
    """Return a client context; SSL_CERT_FILE counts where no file is given.

    Raises UsageError when the CA file cannot be read.
    """
    try:
        made = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--ca {ca_file}: not a readable PEM file ({error})") from None
    if insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made


class TlsStream(Stream):
    """A stream whose bytes are encrypted; the stamps are those of the ciphertext."""

    def __init__(self, host: Host, peer: Peer, worker: int, script: Script) -> None:
        super().__init__(host, peer, worker, script)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl: ssl.SSLObject | None = None

    async def _secure(self, sock: socket.socket) -> None:
        assert self._peer.tls is not None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = self._peer.tls.wrap_bio(
            self._incoming, self._outgoing, server_hostname=self._peer.hostname
        )
        poller = self._host.poller
        while True:
            try:
                self._ssl.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                done = False
            unsent = memoryview(self._outgoing.read())
            while unsent:
                try:
                    unsent = unsent[sock.send(unsent) :]
                except BlockingIOError:
                    await poller.ready(sock.fileno(), writing=True)
            if done:
                return
            await poller.ready(sock.fileno())
            received = sock.recv(1 << 16)
            if not received:
                raise ssl.SSLError("the server closed the connection during the TLS handshake")
            self._incoming.write(received)

    def _encode(self, payload: bytes) -> bytes:
        assert self._ssl is not None
        self._ssl.write(payload)
        return self._outgoing.read()

    def _readable(self) -> None:
        try:
            size, ancillary, _, _ = self._sock.recvmsg_into(self._into, 64)  # type: ignore[union-attr]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error)
            return
        user_ns = now_ns()
        if not size:
            self._closed_by_peer(user_ns)
            return
        self._incoming.write(self._host.view[:size])
        plain, closed = self._decrypt()
        if plain:
            self._keep(user_ns, ancillary, plain, len(plain), plain)
        if closed and self._sock is not None:
            self._closed_by_peer(user_ns)

    def _decrypt(self) -> tuple[bytes, bool]:
        """Return what can be decrypted now, and whether the peer has closed or broken TLS."""
        assert self._ssl is not None
        parts: list[bytes] = []
        try:
            while part := self._ssl.read(1 << 16):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), False
        except ssl.SSLError:
            pass
        return b"".join(parts), True
