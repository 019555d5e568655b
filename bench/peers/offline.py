"""What some peers would fetch from the network, made here: a tokenizer's place, a book to quote."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = "local/tokenizer"
"""Under this name a tokenizer's folder is found where `HF_HOME` is what `hub_cache` made."""

_REVISION = "0" * 40
_WORDS = "the of and river stone lamp walks under over bright morning turns before after slow"
_BOOK_WORDS = 60_000


def hub_cache(tokenizer: Path, folder: Path) -> Path:
    """Lay out `folder` as a hub's cache that holds the tokenizer; return it, to be `HF_HOME`."""
    place = folder / "hub" / f"models--{REPOSITORY.replace('/', '--')}"
    snapshot = place / "snapshots" / _REVISION
    snapshot.mkdir(parents=True)
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(_REVISION)
    for path in tokenizer.iterdir():
        if path.suffix in (".json", ".jinja"):
            (snapshot / path.name).symlink_to(path.absolute())
    return folder


@contextmanager
def book(folder: Path) -> Iterator[str]:
    """Yield the address of a text of 60,000 words, served on loopback."""
    rng = random.Random(1)
    words = _WORDS.split()
    (folder / "book.txt").write_text(" ".join(rng.choice(words) for _ in range(_BOOK_WORDS)))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/book.txt"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    """A file server that does not tell of its requests."""

    def log_message(self, *_args: object) -> None:
        """Say nothing."""
