"""What a person typed as a target, as the root URL and the API's prefix. Pure.

Metrics and probes hang on the root (`http://h:8000/metrics`), requests on root + prefix
(`http://h:8000/v1/chat/completions`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from concbench.errors import UsageError

DEFAULT_PREFIX = "/v1"

_ENDPOINTS = (
    "/chat/completions",
    "/completions",
    "/embeddings",
    "/responses",
    "/models",
    "/metrics",
    "/health",
)
_VERSION = re.compile(r"/v\d+(?:alpha|beta)?\d*\Z")
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LOOKS_LIKE_URL = re.compile(r"://|/|:\d+\Z|\A(localhost|\d+\.\d+\.\d+\.\d+)\Z|\A\[|\.[a-z]{2,}\Z")


@dataclass(frozen=True, slots=True)
class TargetUrl:
    """`root` has no trailing slash; `api_prefix` begins with one and has none at its end."""

    root: str
    api_prefix: str = DEFAULT_PREFIX

    @property
    def api(self) -> str:
        """The base of the OpenAI-like API: root and prefix together."""
        return self.root + self.api_prefix


def looks_like_url(text: str) -> bool:
    """Return whether a target is meant as a URL rather than as the name of a lane."""
    return bool(_LOOKS_LIKE_URL.search(text.strip().lower()))


def parse_target(text: str) -> TargetUrl:
    """Return root and API prefix of a target.

    Accepts a missing scheme (`box:8000` is http, port 443 is https), trailing slashes, `/v1` or
    another version, a path before it, and a whole endpoint such as `…/v1/chat/completions`.
    Raises UsageError for anything that is no HTTP URL, and for user names, queries and fragments,
    which would be lost on the way.
    """
    typed = text.strip()
    if not typed:
        raise UsageError("the target is empty: give a URL such as http://localhost:8000")
    if re.search(r"[\x00-\x20\x7f\\]", typed):
        raise UsageError(
            f"{typed!r} is no URL: it holds a space, a control character or a backslash"
        )
    with_scheme = typed if "://" in typed else "http://" + typed
    parts, port = _split(with_scheme)
    scheme = parts.scheme.lower()
    if "://" not in typed and port == _DEFAULT_PORTS["https"]:
        scheme = "https"
    if scheme not in _DEFAULT_PORTS:
        raise UsageError(f"{scheme}:// is not supported: give an http:// or https:// URL")
    _refuse_extras(parts)
    path, prefix = _split_path(parts.path)
    return TargetUrl(f"{scheme}://{_authority(parts, scheme, port)}{path}", prefix)


def _split(url: str) -> tuple[SplitResult, int | None]:
    """Return the URL's parts and its port; UsageError where either cannot be read."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        shown = url.split("@")[-1]
        raise UsageError(f"{shown} is no URL ({error}); an IPv6 address needs [brackets]") from None
    if not parts.hostname:
        raise UsageError(f"{url.split('@')[-1]} names no host: give http://HOST:PORT")
    if port == 0:
        raise UsageError("port 0 is no port to connect to: give http://HOST:PORT")
    return parts, port


def _refuse_extras(parts: SplitResult) -> None:
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"the URL of {parts.hostname} holds a user name or password: put the key into an "
            "environment variable and name it with --api-key-env"
        )
    if parts.query or parts.fragment:
        raise UsageError(f"the URL of {parts.hostname} holds a query or a fragment: leave it out")


def _authority(parts: SplitResult, scheme: str, port: int | None) -> str:
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return host if port in (None, _DEFAULT_PORTS[scheme]) else f"{host}:{port}"


def _split_path(path: str) -> tuple[str, str]:
    """Return the path before the API's version, and the version (`/v1` where there is none)."""
    path = re.sub(r"/+", "/", path).rstrip("/")
    for endpoint in _ENDPOINTS:
        if path.endswith(endpoint):
            path = path.removesuffix(endpoint)
            break
    found = _VERSION.search(path)
    if not found:
        return path, DEFAULT_PREFIX
    prefix = found[0]
    # A version typed twice (…/v1/v1) is a slip of the pen, not a place.
    while path.endswith(prefix):
        path = path.removesuffix(prefix)
    return path, prefix
