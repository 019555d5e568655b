"""What each key of a matrix's tables (`payload.matrix`) and of a link's throughput means."""

from __future__ import annotations

from result_keys import NOT_TOLD, Key

_PLACE = {
    "lane": Key("the lane"),
    "link": Key("the link", "the plan names no links"),
    "context_label": Key("how the plan calls that prompt length"),
    "context_tok": Key("prompt length asked for"),
}
_NO_LEVEL = "there is no cell to set it against"
_NO_OVER = "nothing beyond the pool was measured"
_NO_CHANGE = "a side has no figure, or a fatal doubt"
_TOO_FEW = "a side has fewer than 3 rounds, or too few requests for a median's interval"
_FATAL = Key("fatal doubts of the cell, by code")

MATRIX: dict[str, dict[str, Key]] = {
    "Matrix": {
        "single_stream": Key("one stream alone, by context"),
        "concurrency": Key("every cell in its place"),
        "gain": Key("from one stream to saturation"),
        "predicted": Key("measured peak against what prefill alone would allow"),
        "max_concurrency": Key("how many at once"),
        "against": Key("cells that differ in one axis alone"),
        "unlike": Key("what makes lanes unlike that are set side by side"),
    },
    "Change": {
        "relative_pct": Key("100 · (b − a) ÷ a"),
        "low_pct": Key("lower end of its interval", _TOO_FEW),
        "high_pct": Key("upper end", _TOO_FEW),
        "exceeds_noise": Key("whether that interval leaves out 0", _TOO_FEW),
        "spreads_overlap": Key("whether both spreads overlap: no test", "a side has no spread"),
        "basis": Key("what noise was judged by"),
    },
    "SingleRow": {
        **_PLACE,
        "prefill_tok_per_s": Key("prompt tokens a second", "it was not measured"),
        "prefill_method": Key("`slope`, or `prompt ÷ TTFT`", "there is no prefill rate"),
        "decode_tok_per_s": Key("1 ÷ TPOT", "no answer was long enough"),
        "ttft_ms": Key("median of the requests", "nothing was streamed"),
        "against": Key("the lane that changes are against", "it is that lane, or stands alone"),
        "prefill_change": Key("against that lane", _NO_CHANGE),
        "decode_change": Key("against that lane", _NO_CHANGE),
        "ttft_change": Key("against that lane", _NO_CHANGE),
        "fatal": _FATAL,
    },
    "ConcurrencyRow": {
        "cell": Key("id of the cell"),
        **_PLACE,
        "concurrency": Key("N of the cell", unit="requests"),
        "outcome": Key("how the cell ended"),
        "aggregate_tok_per_s": Key("whole batch", "nothing was measured"),
        "per_stream_tok_per_s": Key("mean of the requests' own rates", "nothing was streamed"),
        "scaling": Key("aggregate ÷ that of N = 1", "N = 1 was not measured", "×"),
        "overlap": Key("as in the cell", "as in the cell", "share"),
        "elapsed_s": Key("wall of one batch", "nothing was measured"),
        "relative_to": Key("N of the cell that both ratios are against", _NO_LEVEL, "requests"),
        "elapsed_ratio": Key("wall ÷ that cell's", _NO_LEVEL, "×"),
        "concurrency_ratio": Key("N ÷ that cell's", _NO_LEVEL, "×"),
        "throughput_constant": Key(
            "whether the aggregate is within 3 % of that cell's",
            "it is not, and the noise is as large; or there is no such cell",
        ),
        "over_kv": Key("whether N × (context + answer) exceeds the KV pool"),
        "over_slots": Key("whether N is more than the engine runs at once"),
        "kv_demand_tok": Key("N × (context + answer)", NOT_TOLD),
        "kv_pool_tok": Key("the pool", NOT_TOLD),
        "failures": Key("requests that failed", unit="count"),
        "preemptions": Key("requests put back for lack of KV", NOT_TOLD, "count"),
        "waiting_max": Key("the most that waited", NOT_TOLD, "requests"),
        "queue_mean_ms": Key("mean wait in the server's queue", NOT_TOLD),
        "fatal": _FATAL,
    },
    "GainRow": {
        **_PLACE,
        "single_tok_per_s": Key("aggregate at N = 1"),
        "peak_tok_per_s": Key("the largest aggregate"),
        "peak_concurrency": Key("N of that peak", unit="requests"),
        "saturation_concurrency": Key("smallest N that reaches 97 % of it", unit="requests"),
        "gain": Key("peak ÷ single", unit="×"),
        "saturated": Key("whether a larger N was measured"),
    },
    "PredictedRow": {
        **_PLACE,
        "output_tok": Key("output tokens a request, G"),
        "prefill_tok_per_s": Key("prefill rate of one stream"),
        "prefill_method": Key("how that was had"),
        "predicted_tok_per_s": Key("prefill × G ÷ (context + G)"),
        "measured_tok_per_s": Key("the measured peak"),
        "measured_concurrency": Key("N of that peak", unit="requests"),
        "measured_to_predicted": Key("measured ÷ predicted", unit="×"),
        "long_context": Key("whether the prompt is at least 16 times the answer"),
    },
    "MaxRow": {
        **_PLACE,
        "kv_pool_tok": Key("the pool", NOT_TOLD),
        "kv_limit": Key("⌊pool ÷ (context + G)⌋", "the pool is not known", "requests"),
        "max_clean": Key(
            "largest N in pool and slots without a failure", "there is none", "requests"
        ),
        "over_concurrency": Key("largest N beyond the pool", _NO_OVER, "requests"),
        "over_ratio": Key("its demand ÷ pool", _NO_OVER, "×"),
        "over_failures": Key("requests that failed there", _NO_OVER, "count"),
        "over_preemptions": Key("requests put back there", f"{_NO_OVER}, or not told", "count"),
        "over_outcome": Key("how it ended", _NO_OVER),
        "first_bad": Key("smallest N that did not end well", "all ended well", "requests"),
        "first_bad_outcome": Key("how it ended", "all ended well"),
    },
    "AgainstRow": {
        "axis": Key("`link`, `lane`, `flag` or `control`"),
        "a": Key("value of the axis on side A"),
        "b": Key("value of the axis on side B"),
        "shared": Key("what both have: the lane for links, else the link", "there is no link"),
        "context_label": Key("how the plan calls that prompt length"),
        "context_tok": Key("prompt length asked for"),
        "concurrency": Key("N of both", unit="requests"),
        "metric": Key("what is compared"),
        "a_value": Key("figure of A", unit="as `metric`"),
        "b_value": Key("figure of B", unit="as `metric`"),
        "change": Key("B against A"),
        "reading": Key(
            "what may be said: `beyond` the noise, `within`, `unknown`, `drifted` (control moved "
            "by more than half of the change), `invalid` (a fatal doubt)"
        ),
        "fatal": Key("fatal doubts of either cell, each with its side"),
        "drift_pct": Key("how far a lane's control moved, the larger of both", "no control", "%"),
    },
    "Unlike": {
        "axis": Key("`lane` or `flag`"),
        "a": Key("lane or value of side A"),
        "b": Key("lane or value of side B"),
        "names": Key("names of what differs, as `--accept` takes them"),
    },
    "Throughput": {
        "direction": Key("`there`, `back`, or `both` at once"),
        "way": Key("the one that this entry is about"),
        "streams": Key("TCP connections at once", unit="count"),
        "length_s": Key("how long it ran"),
        "received_gb_per_s": Key("over the whole run, as received"),
        "gb_per_s": Key("mean of one-second reports with its interval", unit="Gbit/s"),
        "retransmits": Key("segments sent again", "the system does not tell", "count"),
    },
}
"""Structure -> key -> what it means."""
