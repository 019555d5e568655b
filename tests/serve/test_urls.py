"""What people type as a base URL (wayland#1178, crw#142: /v1/v1 and 404)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concbench.errors import UsageError
from concbench.serve.urls import TargetUrl, looks_like_url, parse_target


@pytest.mark.parametrize(
    "typed",
    [
        "http://box:8000",
        "http://box:8000/",
        "http://box:8000/v1",
        "http://box:8000/v1/",
        "http://box:8000//v1//",
        "http://box:8000/v1/v1",
        "http://box:8000/v1/chat/completions",
        "http://box:8000/v1/completions/",
        "http://box:8000/v1/models",
        "http://box:8000/metrics",
        "box:8000",
        "box:8000/v1",
        "  HTTP://BOX:8000/v1 ",
    ],
)
def test_every_spelling_of_one_server_is_one_target(typed):
    assert parse_target(typed) == TargetUrl("http://box:8000", "/v1")


@pytest.mark.parametrize(
    ("typed", "root", "prefix"),
    [
        ("https://api.example.com/v4", "https://api.example.com", "/v4"),
        ("https://x.example/api/paas/v4/chat/completions", "https://x.example/api/paas", "/v4"),
        ("https://x.example/v1beta", "https://x.example", "/v1beta"),
        ("https://x.example/openai/v1", "https://x.example/openai", "/v1"),
        ("http://swap:8080/upstream/qwen", "http://swap:8080/upstream/qwen", "/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000", "/v1"),
        ("[fe80::1]:8000", "http://[fe80::1]:8000", "/v1"),
        ("box:443", "https://box", "/v1"),
        ("http://box:80/", "http://box", "/v1"),
        ("https://box:443/v1", "https://box", "/v1"),
        ("localhost", "http://localhost", "/v1"),
    ],
)
def test_root_and_prefix(typed, root, prefix):
    assert parse_target(typed) == TargetUrl(root, prefix)


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("ftp://box", "http://"),
        ("unix:///run/x.sock", "no host"),
        ("http://", "no host"),
        ("http://:8000", "no host"),
        ("http://box:0", "port 0"),
        ("http://box:99999", "no URL"),
        ("http://box:eight", "no URL"),
        ("::1:8000", "brackets"),
        ("http://[::1", "brackets"),
        ("http://box:8000/v1?key=1", "query"),
        ("http://box:8000/#a", "fragment"),
        ("http://a b", "space"),
        ("http://box\\v1", "backslash"),
    ],
)
def test_bad_ones_say_why(typed, says):
    with pytest.raises(UsageError, match=says):
        parse_target(typed)


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(UsageError, match="--api-key-env") as caught:
        parse_target("http://me:s3cret@box:8000")
    assert "s3cret" not in str(caught.value)
    with pytest.raises(UsageError) as caught:
        parse_target("http://me:s3cret@box:port")
    assert "s3cret" not in str(caught.value)


@given(st.text(max_size=60) | st.from_regex(r"(https?://)?[\[\]a-z0-9.:@/?#%-]{0,40}"))
def test_any_text_is_a_target_or_a_usage_error(text):
    try:
        url = parse_target(text)
    except UsageError:
        return
    assert url.root.startswith(("http://", "https://"))
    assert not url.root.endswith("/")
    assert url.api_prefix.startswith("/")


@given(
    st.sampled_from(["http", "https"]),
    st.sampled_from(["box", "10.0.0.1", "a.example.com", "[2001:db8::2]"]),
    st.integers(1, 65535),
    st.lists(st.sampled_from(["a", "openai", "api", "x1"]), max_size=2),
    st.sampled_from(["", "/", "/v1", "/v1/", "/v1/chat/completions", "/v2/completions", "/v4"]),
)
def test_parsing_again_changes_nothing(scheme, host, port, path, end):
    first = parse_target(f"{scheme}://{host}:{port}{''.join('/' + one for one in path)}{end}")
    assert parse_target(first.api) == first
    assert parse_target(first.api + "/chat/completions") == first
    assert parse_target(first.api + "/") == first


@pytest.mark.parametrize("text", ["http://x", "box:8000", "localhost", "10.0.0.7", "a.example.com"])
def test_urls_are_told_from_lane_names(text):
    assert looks_like_url(text)


@pytest.mark.parametrize("text", ["embedded", "nvfp4", "gguf-q5", "lane_1"])
def test_lane_names_are_told_from_urls(text):
    assert not looks_like_url(text)
