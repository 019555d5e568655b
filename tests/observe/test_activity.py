import json

from hypothesis import given
from hypothesis import strategies as st

from concbench.observe.activity import ActivityRows, final_stats, read_activity


def entry(identity: int, **tokens: float) -> dict:
    return {
        "id": identity, "timestamp": "…", "model": "m", "req_path": "/v1/chat/completions",
        "resp_status_code": 200, "duration_ms": 1500,
        "tokens": {"input_tokens": 10, "output_tokens": 64, "cache_tokens": -1,
                   "draft_tokens": -1, "prompt_per_second": 100.0, "tokens_per_second": 42.5,
                   **tokens},
    }  # fmt: skip


def test_what_is_below_zero_is_missing():
    found = read_activity(json.dumps({"data": [entry(7, tokens_per_second=-1)]}).encode())
    assert found == {
        "7": {"input_tok": 10, "output_tok": 64, "prompt_tok_per_s": 100, "ms": 1500,
              "http_status": 200}
    }  # fmt: skip


def test_old_releases_had_it_flat():
    body = json.dumps([{"id": 1, "input_tokens": 3, "output_tokens": 4, "duration_ms": 9}]).encode()
    assert read_activity(body) == {"1": {"input_tok": 3, "output_tok": 4, "ms": 9}}
    assert read_activity(b"nope") is None


def test_each_new_request_is_told_once():
    told = ActivityRows()
    assert list(told.rows({"1": {"output_tok": 5.0}}, 0, 1)) == []
    rows = list(told.rows({"1": {"output_tok": 5.0}, "2": {"output_tok": 6.0}}, 2, 3))
    assert [(r.name, r.labels, r.value) for r in rows] == [("activity_output_tok", "id=2", 6.0)]
    assert list(told.rows({"2": {"output_tok": 6.0}}, 4, 5)) == []


def test_ollamas_last_object():
    stats = {
        "done": True, "total_duration": 2_000_000_000, "load_duration": 5_000_000,
        "prompt_eval_count": 26, "prompt_eval_duration": 130_000_000,
        "eval_count": 90, "eval_duration": 1_500_000_000,
    }  # fmt: skip
    found = final_stats(json.dumps(stats).encode())
    assert found == {
        "total_ms": 2000, "load_ms": 5, "prompt_tok": 26, "prompt_ms": 130,
        "output_tok": 90, "output_ms": 1500,
    }  # fmt: skip
    del stats["prompt_eval_count"]
    assert "prompt_tok" not in final_stats(stats)


def test_lm_studios_statistics_of_both_versions():
    v0 = {
        "stats": {"tokens_per_second": 50.0, "time_to_first_token": 0.111, "generation_time": 2.0}
    }
    assert final_stats(v0) == {"output_tok_per_s": 50, "ttft_ms": 111, "output_ms": 2000}
    v1 = {
        "stats": {"input_tokens": 5, "total_output_tokens": 9, "time_to_first_token_seconds": 0.2}
    }
    assert final_stats(v1) == {"prompt_tok": 5, "output_tok": 9, "ttft_ms": 200}


@given(
    st.binary(max_size=100)
    | st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["data", "id", "tokens", "stats", "eval_count"]), inner
            )
        ),
        max_leaves=10,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_are_read(body):
    assert all(value >= 0 for value in final_stats(body).values())
    for values in (read_activity(body) or {}).values():
        assert all(value >= 0 for value in values.values())
