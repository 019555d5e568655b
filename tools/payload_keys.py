"""What each key of the payloads of `capacity`, `find` and `spec` means: see `result_keys`."""

from __future__ import annotations

from result_keys import Key

_LANE = Key("the lane")
_LINK = Key("the link", "the study knows no links")
_CONTEXT = Key("length of the prompts", unit="tokens")
_CELL = Key("id of the cell")
_CONCURRENCY = Key("requests in flight at once", unit="requests")
_FEW = "no answer came"
_STANDING = Key(
    "`holds`, `open`, `fails`, `doubted` where a fatal doubt forbids an answer, or `unmeasured`"
)
_WHY = Key("what stands in the way of holding, empty where nothing does")
_FAILED = Key("failed requests among those sent", "nothing was sent")
_E2E = Key("mean time from send to end of an answer", _FEW)
_NO_THINK = "the time of an answer is not known"
_GROWS = "the time of an answer is not known, or the queue grows"

PAYLOAD: dict[str, dict[str, Key]] = {
    "Capacity": {
        "lane": _LANE,
        "link": _LINK,
        "context_tok": _CONTEXT,
        "context_label": Key("length class, or the kind of content where several were asked"),
        "output_tok": Key("mean length of the answers", _FEW),
        "pool_tok": Key("size of the KV pool", "the engine does not tell it"),
        "n_kv": Key(
            "requests of prompt plus answer that the KV pool holds at once",
            "the pool or the length of the answers is not known",
            "requests",
        ),
        "knee": Key(
            "S_max · E2E(1) ÷ G: the concurrency at which throughput must begin to bend",
            "there is no level of one request, or no rate",
            "requests",
        ),
        "ceiling": Key("whether throughput was seen to stop growing: `reached`, `passed`, …"),
        "holds": Key("largest concurrency shown to hold", "none is", "requests"),
        "fails": Key("smallest concurrency shown to fail", "none is", "requests"),
        "open": Key("concurrencies with too few requests for an answer", unit="requests"),
        "users": Key("`holds` with the think time", "nothing holds", "users"),
        "levels": Key("every level with its objectives"),
    },
    "LevelCapacity": {
        "cell": _CELL,
        "concurrency": _CONCURRENCY,
        "tok_per_s": Key("output rate of the kind that all levels share", "no level has one"),
        "gain_per_doubling": Key(
            "rate against the nearest level at least half a doubling below, scaled to a doubling",
            "no level is that far below",
            "×",
        ),
        "e2e_mean_s": _E2E,
        "users": Key("users at this level with the think time", _NO_THINK, "users"),
        "failed_pct": _FAILED,
        "objectives": Key("each objective at this level"),
        "standing": _STANDING,
        "why": _WHY,
    },
    "Objective": {
        "slo": Key("name of the objective, such as `ttft_p95`"),
        "limit": Key("its limit, in its own unit", unit="as keyed"),
        "value": Key("what was measured", "nothing was", "as keyed"),
        "bound": Key(
            "worse end of the 95 % interval of `value`", "too few requests for one", "as keyed"
        ),
        "standing": _STANDING,
    },
    "RateCapacity": {
        "lane": _LANE,
        "link": _LINK,
        "context_tok": _CONTEXT,
        "holds_rps": Key("largest rate shown to hold", "none is"),
        "fails_rps": Key("smallest rate shown to fail", "none is"),
        "confirmed_rounds": Key("rounds measured at `holds_rps`", unit="rounds"),
        "open_rps": Key("rates without an answer"),
        "levels": Key("every rate with its objectives"),
    },
    "RateLevel": {
        "cell": _CELL,
        "rate_rps": Key("rate asked for"),
        "sent_rps": Key("rate really sent", "nothing was sent"),
        "rounds": Key("measured rounds", unit="rounds"),
        "requests": Key("requests sent", unit="requests"),
        "state": Key("`stable`, `undetermined` or `saturated`", "it could not be judged"),
        "queue_slope_per_s": Key("growth of the number in flight", "it could not be fitted"),
        "completions_per_arrival": Key(
            "requests ended, failed ones included, ÷ requests sent", "nothing was sent", "×"
        ),
        "e2e_mean_s": _E2E,
        "in_flight": Key("requests at the box at once: rate · E2E", _GROWS, "requests"),
        "users": Key("rate · (E2E + think time)", _GROWS, "users"),
        "failed_pct": _FAILED,
        "objectives": Key("each objective at this rate"),
        "standing": _STANDING,
        "why": _WHY,
    },
    "StepPrediction": {
        "lane": _LANE,
        "link": _LINK,
        "labels": Key("contexts, or the content, that were fitted"),
        "model": Key("the fitted step", "`why` says why there is none"),
        "why": Key("why there is no model", "there is one"),
        "prefill_tok_per_s": Key("prefill rate beside the model", "none is known"),
        "prefill_method": Key("where the prefill rate comes from", "none is known"),
        "error_mean_pct": Key("mean size of the errors, leaving out a level at a time", "no model"),
        "error_max_pct": Key("largest of these errors", "there is no model"),
        "held_out": Key("errors beyond what was fitted"),
        "levels": Key("predicted levels"),
        "rows": Key("measured levels that the fit saw"),
    },
    "StepModel": {
        "a_ms": Key("a step without any sequence"),
        "b_ms": Key("what a sequence adds to a step"),
        "c_ms_per_1000_tok": Key("what 1,000 resident tokens add to a step"),
        "context_tok": Key("the only context that it holds for", "several were fitted"),
    },
    "HeldOut": {
        "axis": Key("`concurrency` or `context_tok`"),
        "value": Key("the largest value, left out of the fit", unit="of the axis"),
        "error_pct": Key("error at it with the largest size"),
    },
    "PredictedLevel": {
        "context_tok": _CONTEXT,
        "concurrency": _CONCURRENCY,
        "forecast": Key("whether nobody measured there"),
        "user_tok_per_s": Key("predicted output rate of one request"),
        "decode_tok_per_s": Key("predicted output rate while all decode"),
        "sustained_tok_per_s": Key("the same with prefills between", "no prefill rate is known"),
        "measured_decode_tok_per_s": Key("what was measured", "it is a forecast"),
        "error_pct": Key(
            "100 · (predicted ÷ measured − 1) by a fit without this level",
            "it is a forecast, or no fit is left without it",
        ),
    },
    "StepRow": {
        "cell": _CELL,
        "concurrency": _CONCURRENCY,
        "context_tok": _CONTEXT,
        "output_tok": Key("mean length of the answers"),
        "tokens_per_step": Key("tokens that a step gives a sequence", unit="tokens"),
        "sequences": Key("sequences in a step, B", unit="sequences"),
        "resident_tok": Key("tokens in the KV cache during a step, K"),
        "step_s": Key("time of a step"),
        "method": Key("where the step's time comes from: `decode@N`, or `tpot`"),
    },
    "Speculation": {
        "off": Key("lane without speculation"),
        "on": Key("lane with it"),
        "sentence": Key("the answer"),
        "acceptance": Key("where accepted tokens are counted: `server`, or `unknown`"),
        "contents": Key("each kind of content over all levels"),
        "rows": Key("each content at each level"),
    },
    "SpeculationContent": {
        "content": Key("kind of content, such as `code`"),
        "pays": Key("levels at which it is shown to pay", unit="requests"),
        "costs": Key("levels at which it is shown to cost", unit="requests"),
        "equal": Key("levels at which it is shown to change nothing", unit="requests"),
        "undecided": Key("levels without an answer", unit="requests"),
        "pays_up_to": Key("highest level of those that pay from the lowest on", "none", "requests"),
        "stops_in": Key(
            "the two levels between which it stops paying", "it does not, or never paid", "requests"
        ),
        "accepted_len": Key(
            "least and most that a draft yields over the levels", "not counted", "tokens"
        ),
        "acceptance_varies": Key("whether these lie more than 5 % apart"),
        "says": Key("the answer for this content"),
    },
    "SpeculationRow": {
        "content": Key("kind of content"),
        "concurrency": _CONCURRENCY,
        "metric": Key("the rate that is compared"),
        "off": Key("that rate without speculation", "not measured", "as keyed"),
        "on": Key("that rate with speculation", "not measured", "as keyed"),
        "ratio": Key("on ÷ off", "one of both is missing", "×"),
        "verdict": Key("`pays`, `costs`, `equal`, `undecided` or `no verdict`"),
        "why": Key("why there is no verdict", "there is one"),
        "accepted_len": Key("1 + accepted ÷ drafts", "not counted", "tokens"),
        "accepted_rate": Key("accepted ÷ drafted tokens", "not counted", "×"),
        "tokens_per_step": Key(
            "generated ÷ (generated − accepted): what a step yields", "not counted", "tokens"
        ),
    },
}
