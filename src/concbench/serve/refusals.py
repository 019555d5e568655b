"""Answers that are no use, as errors that say what to do."""

from __future__ import annotations

from urllib.parse import urlsplit

from concbench.engines.spec import Answer
from concbench.errors import Refused, TargetError, Unreachable, WrongPath
from concbench.serve.http import Http, NoAnswer, parse_json
from concbench.serve.urls import TargetUrl

_ADVICE = {
    "refused": "nothing listens there (connection refused): is the server up, and is it this port?",
    "timeout": "no answer in time: is it the right address, and does a firewall drop the packets?",
    "no_such_host": "no such host: check the spelling",
    "no_route": "there is no route to it: check the address and the network",
    "reset": "the connection was closed without an answer: does the server speak http here?",
    "not_http": "what answers there does not speak HTTP: an https server takes an https:// URL",
    "cut": "the answer was cut short",
}


def no_answer_error(answer: NoAnswer, url: str) -> TargetError:
    """Return Unreachable (WrongPath where something answers that is no HTTP)."""
    if answer.reason == "tls":
        if "WRONG_VERSION_NUMBER" in answer.detail or "RECORD_LAYER" in answer.detail:
            advice = "the server does not speak TLS: use http://"
        else:
            advice = "give the authority with --ca FILE, or --insecure to trust it unseen"
        return Unreachable(f"{url}: TLS failed ({answer.detail}): {advice}")
    kind = WrongPath if answer.reason == "not_http" else Unreachable
    detail = f" ({answer.detail})" if answer.reason in ("cut", "reset", "not_http") else ""
    return kind(f"{url}: {_ADVICE[answer.reason]}{detail}")


def status_error(answer: Answer, called: str, said: str) -> TargetError:
    """Return the error for an HTTP status that no waiting will change."""
    words = f": {said}" if said else ""
    if answer.status in (401, 403):
        return Refused(
            f"{called} answered {answer.status}{words}; put the key into an environment variable "
            "and name it with --api-key-env"
        )
    if 300 <= answer.status < 400:
        place = answer.headers.get("location", "nowhere")
        return WrongPath(f"{called} redirects to {place}: give that address as the target")
    return WrongPath(f"{called} answered {answer.status}{words}")


def wrong_path(listing: Answer, url: TargetUrl, http: Http) -> WrongPath:
    """Return the error for a model list that is none, and the likely right URL if one answers."""
    called = f"{url.api}/models"
    likely = _likely(url, http)
    if listing.status == 404:
        hint = f"; {likely} does answer: use that" if likely else "; the base URL is usually …/v1"
        return WrongPath(f"{called} answered 404{hint}")
    kind = listing.headers.get("content-type", "something unlabelled").partition(";")[0]
    hint = f"; {likely} looks right" if likely else ""
    if listing.ok:
        return WrongPath(f"{called} is not an LLM server: it answered {kind}{hint}")
    said = http.excerpt(listing)
    return WrongPath(f"{called} answered {listing.status} ({said or kind}){hint}")


def _likely(url: TargetUrl, http: Http) -> str | None:
    """Return a nearby base URL that lists models, or None."""
    parts = urlsplit(url.root)
    host = f"{parts.scheme}://{parts.netloc}"
    nearby = [f"{url.root}/v1", f"{host}/v1", f"{host}/api/v1", f"{host}/openai/v1"]
    for base in dict.fromkeys(nearby):
        if base == url.api:
            continue
        answer = Http(base, http.access).get("/models")
        value = parse_json(answer) if answer.ok else None
        if isinstance(value, dict) and isinstance(value.get("data"), list):
            return base
    return None
