"""The advice behind each doubt: what it does to the number, and what to do about it.

The message of a doubt comes from the analysis and names its evidence; this is what is always true
of its code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """`effect` says what the doubt does to the number, `action` what to do about it."""

    effect: str
    action: str


UNKNOWN = Advice(
    "This doubt is not known to this version of the report.",
    "Read its message; a newer version may say more.",
)

_FATAL = {
    "client_bound": Advice(
        "The client was the limit: times are too long, rates too low, by an unknown amount.",
        "Use a faster or idle client machine, more --procs, or a lower load, and measure again.",
    ),
    "server_restarted": Advice(
        "The server restarted during the round: part of the time it served nothing.",
        "Find out why it restarted (its log, memory), then measure the cell again.",
    ),
    "counters_unusable": Advice(
        "The server's counters went backwards or made no sense, and the headline rests on them.",
        "Check that one engine alone answers at the metrics address, and measure again.",
    ),
    "errors_in_stream": Advice(
        "Streams carried error events: their requests stopped early and freed capacity for others.",
        "Read the errors in the study and the engine's log; rates count only once they are gone.",
    ),
    "truncated_streams": Advice(
        "Answers ended without their terminator: lengths and end times are not the real ones.",
        "Look for a proxy's or engine's time-out and for crashes of workers; measure again.",
    ),
    "empty_responses": Advice(
        "Requests succeeded without a token: they take load off the server and distort every rate.",
        "Check the model, the chat template and the stop strings with one request by hand.",
    ),
    "garbled_output": Advice(
        "The output is broken text: the speed of wrong answers is no speed.",
        "Compare with the recipe's flags, kernels and quantisation; verify output before speed.",
    ),
    "cross_talk": Advice(
        "A request received text that belongs to another one: the engine mixes up its streams.",
        "Do not use this configuration; report it to the engine's authors with the study.",
    ),
    "simulated_acceptance": Advice(
        "Speculation was told to accept tokens unseen: rates are higher than any real use reaches.",
        "Remove the flag that simulates acceptance and measure again.",
    ),
    "clock_stepped": Advice(
        "The clock was set during the round: stamps before and after do not belong together.",
        "Let time synchronisation settle (slew, not step) and measure again.",
    ),
    "stalled": Advice(
        "No byte came for a long time: the round shows a hang, not a speed.",
        "Read the engine's last log lines; restart it and measure the cell again.",
    ),
    "drifted": Advice(
        "The control changed as much as a real difference would: time may be the cause.",
        "Let the machine reach a steady temperature, stop other work, and compare again.",
    ),
    "requests_failed": Advice(
        "Failed requests are not in the rates; the others had the server more to themselves.",
        "See the kinds of error under the table; lower the load or raise the server's limits.",
    ),
}

_MEASURED = {
    "usage_inconsistent": Advice(
        "The server's token counts contradict each other; completion_tokens is used.",
        "Compare with a tokenizer on one answer before trusting differences of a few percent.",
    ),
    "late_reads": Advice(
        "The client read late; kernel stamps correct it, but coalesced reads stay upper bounds.",
        "Leave more CPU to the client, or move it to another machine.",
    ),
    "late_sends": Advice(
        "Requests left later than scheduled: the server saw less pressure than was asked for.",
        "Leave more CPU to the client; read the *_from_due figures, which count from the schedule.",
    ),
    "no_steady_state": Advice(
        "There is no steady window: the batch figure includes ramp-up and drain.",
        "Compare it with batch figures alone; what would give a window is said with the reason.",
    ),
    "wide_interval": Advice(
        "The interval is wide, or there is none: small differences cannot be told apart.",
        "Raise --rounds-max or --max-s, or quieten the machine.",
    ),
    "client_server_disagree": Advice(
        "Client and server count different rates; where the ledger balances the server's is shown.",
        "Look for other traffic, proxies that buffer, and token counts that are estimated.",
    ),
    "foreign_traffic": Advice(
        "Someone else used the server: the rates are what was left over for us.",
        "Take the server out of service for the measurement, or measure again when it is idle.",
    ),
    "prompt_cache_hit": Advice(
        "Part of the prompts came from the server's cache: TTFT is shorter than for new prompts.",
        "Use distinct prompts, --reset-cache, or read the result as one for repeated prompts.",
    ),
    "prompts_not_distinct": Advice(
        "Prompts shared their beginning, so that a prefix cache could answer for the model.",
        "Leave out --same-prompt, or give a --prompts file whose prompts differ from the start.",
    ),
    "prompt_length_off": Advice(
        "Prompts were not as long as asked; rates use what the server counted.",
        "Mind the real length when comparing, or set --prompt-tokens to make up for the template.",
    ),
    "output_short": Advice(
        "Answers ended before the length asked: the load thinned out and rates fell with it.",
        "Make the engine ignore the end token, or choose a length that the model fills.",
    ),
    "output_over_cap": Advice(
        "Answers were longer than asked: the server does not honour the limit it was sent.",
        "Check the field name for the limit with this engine (--extra-body).",
    ),
    "token_count_estimated": Advice(
        "Tokens were counted by us, not by the server: rates may be off by a few percent.",
        "Use an endpoint that reports usage, or give the model's own tokenizer.",
    ),
    "buffered_stream": Advice(
        "Tokens arrived in bundles made upstream: gaps between tokens are not the engine's.",
        "Turn off response buffering in the proxy, or measure the engine directly.",
    ),
    "oversubscribed": Advice(
        "More requests than the server can run at once: some waited, and TTFT holds their queue.",
        "Read it as queueing; compare engines at levels that all of them can run.",
    ),
    "preempted": Advice(
        "The engine threw out running requests and computed them again: work was done twice.",
        "Lower the concurrency or context, or give the KV cache more memory.",
    ),
    "context_rejected": Advice(
        "The server refused this context length: the cell has no number.",
        "Raise the server's context limit, or drop the cell.",
    ),
    "truncated_prompt": Advice(
        "The server cut the prompts: it did less work than was asked for.",
        "Raise the context of the server (per slot), or shorten the prompts.",
    ),
    "bimodal": Advice(
        "The rounds fall into two groups: the mean describes neither of them.",
        "Look for what differs (cache, clocks, placement) and measure the groups apart.",
    ),
    "not_comparable": Advice(
        "The two lanes differ in more than what is compared: the ratio mixes causes.",
        "Make them alike, or accept the difference by name with --accept.",
    ),
    "lane_incomplete": Advice(
        "Something of the lane is missing: flags that its recipe requires, which may make it far "
        "slower than it could be, or cells that its engine did not live through.",
        "For flags compare with the recipe (concbench lanes lint) and start it properly; for an "
        "engine that ended read its log, then measure again (a sweep: --retry-failed).",
    ),
    "throttled": Advice(
        "The hardware lowered its clocks for heat or power: later cells are the slower ones.",
        "Improve cooling or set a power limit that holds, then measure again.",
    ),
    "other_gpu_users": Advice(
        "Another process used the GPU: memory and time were shared with it.",
        "Stop it, or name it in the result's description; then measure again.",
    ),
    "concurrency_capped": Advice(
        "The server runs fewer requests at once than were sent: the level is not what it says.",
        "Raise the server's own limit, or read the level as a queue.",
    ),
    "rate_not_kept": Advice(
        "The arrival rate was not the one asked for: the load was another than the label says.",
        "Leave more CPU to the client, use --procs, or ask for a lower rate.",
    ),
    "log_unparsed": Advice(
        "The engine's log was not understood: figures that come from it are missing.",
        "Check the engine's version against those that are supported; other sources still count.",
    ),
    "worker_lost": Advice(
        "A load process died: the load was lower than asked from then on.",
        "See its error in the study (often memory or open files), and measure again.",
    ),
    "compressed_response": Advice(
        "Responses came compressed although this was declined: tokens arrive in blocks.",
        "Turn off compression in the proxy before the engine.",
    ),
    "unparsed_events": Advice(
        "Some events of the streams were no JSON: where they were tokens, tokens are missing.",
        "Look at one answer by hand; pings that a proxy wraps as data are harmless.",
    ),
    "record_damaged": Advice(
        "Part of the study's record is not in these numbers: it cannot be read, or is gone.",
        "Put the study back from a copy, or measure again what is missing.",
    ),
}

_NOTES = {
    "single_round": Advice(
        "One round gives no idea of the spread: a second run may differ by tens of percent.",
        "Measure it again (more --rounds) before comparing anything.",
    ),
    "few_rounds": Advice(
        "Two or three rounds tell little of how much the next one would differ.",
        "Use --rounds 4 or more before comparing anything.",
    ),
    "provisional": Advice(
        "The verdict rests on one start of each server: a restart can shift either side.",
        "Restart the lanes between rounds (sweep, ab with lanes) to make it final.",
    ),
    "cold_first_request": Advice(
        "The first request after the start took far longer; it is kept out of the rates.",
        "Expect it in use after each start or idle time; warm the server up where that matters.",
    ),
    "chunks_not_tokens": Advice(
        "Stream events carry several tokens: gaps between events are not times per token.",
        "Read TPOT rather than the gap's percentiles.",
    ),
    "user_stamps": Advice(
        "Stamps were taken by the program, not the kernel: the client's lateness is in the times.",
        "Measure without TLS or on Linux for kernel stamps; differences below 1 ms mean little.",
    ),
    "interrupted": Advice(
        "The run was stopped before its end: cells are missing or have fewer rounds.",
        "Run it again; a sweep goes on where it stopped.",
    ),
    "imported": Advice(
        "The numbers come from another tool: its definitions and its error are not ours.",
        "Compare only with results of the same tool, or measure again here.",
    ),
}

ADVICE: dict[str, Advice] = {**_FATAL, **_MEASURED, **_NOTES}
"""Advice by doubt code: every code of the contract."""


def advice(code: str) -> Advice:
    """Return the advice behind a code; a general one for a code that is not known."""
    return ADVICE.get(code, UNKNOWN)
