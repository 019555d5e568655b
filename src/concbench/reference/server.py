"""The server: requests in, answers by the schedule, and the truth about both."""

from __future__ import annotations

import gc
from array import array
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from concbench.clock import now_ns, utc_now
from concbench.errors import UsageError
from concbench.reference.answer import Answer
from concbench.reference.books import reset
from concbench.reference.chaos import Chaos
from concbench.reference.counters import Counters
from concbench.reference.delivery import Delivery
from concbench.reference.faults import Named, parse_faults
from concbench.reference.http import Reply, Request, response_head
from concbench.reference.net import Connection, Network, sharpen_timer, tls_context
from concbench.reference.order import Order, read_order
from concbench.reference.pages import find_page, truth_page
from concbench.reference.personas import PERSONAS, refusal
from concbench.reference.render import Ids
from concbench.reference.schedule import Job, Scheduler
from concbench.reference.state import State
from concbench.reference.stream import Stream
from concbench.reference.swap import HELD
from concbench.reference.truth import Trace

if TYPE_CHECKING:
    from concbench.reference.options import Options

_AUTO_TICK_NS = 200_000
_AUTO_TICK_STREAMS = 64
_WORKERS_APART_NS = 1_500_000_000


class Server:
    """Ties the network to the scheduler. `listen`, then `run` until `stop`."""

    def __init__(self, options: Options) -> None:
        persona = PERSONAS[options.persona]
        self.options = options
        self.state = State(
            options=options,
            persona=persona,
            began_ns=now_ns(),
            created_s=int(utc_now().timestamp()),
            scheduler=Scheduler(options.pace),
            workers=[Counters() for _ in range(2 if options.two_workers else 1)],
        )
        self.net = Network(self, coalesce_ns=options.coalesce_ns)
        self.port = 0
        # What happens once by a timer can be asked for at any time: a test need not guess when.
        self._on_demand = {
            "/truth/stall": self._stall,
            "/truth/reset-counters": self._reset_counters,
            "/truth/preempt": self._preempt,
        }
        # Processes behind one port do not begin at the same moment.
        for index, books in enumerate(self.state.workers):
            books.began_ns = index * _WORKERS_APART_NS
        self.delivery = Delivery(self.state, self.net)
        self._chaos = None if options.chaos_seed is None else Chaos(options.chaos_seed)
        self._pages = 0
        limit = options.max_inflight
        self._max_inflight = persona.max_inflight if limit < 0 else limit
        tick_ns = options.tick_ns
        running = self.state.scheduler.running
        self.net.min_wait_ns = (
            (lambda: _AUTO_TICK_NS if len(running) > _AUTO_TICK_STREAMS else 0)
            if tick_ns < 0
            else (lambda: tick_ns)
        )

    def listen(self) -> str:
        """Bind; return the base URL. Raises PortTaken or UsageError."""
        options = self.options
        self._listen(options.port)
        host = f"[{options.host}]" if ":" in options.host else options.host
        return f"{'https' if options.tls_cert else 'http'}://{host}:{self.port}"

    def _listen(self, port: int) -> None:
        options, tls = self.options, None
        if options.tls_cert is not None:
            tls = tls_context(options.tls_cert, options.tls_key or options.tls_cert)
        self.port = self.net.listen(options.host, port, tls)

    def run(self) -> None:
        """Serve until told to stop, the collector frozen and off."""
        sharpen_timer()
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            self.net.run()
        finally:
            gc.enable()
            gc.unfreeze()

    def stop(self) -> None:
        """End `run`; safe in a signal handler and from another thread."""
        self.net.stop()

    def tick(self, now: int) -> int | None:
        """Send what is due; return when the next token is."""
        scheduler = self.state.scheduler
        scheduler.advance(now, self.delivery.deliver)
        return scheduler.next_due_ns()

    def on_request(self, conn: Connection, request: Request) -> None:
        """Answer a request, or begin to."""
        now = now_ns()
        if request.path.startswith("/truth"):
            self.state.truth.blocked_writes = self.net.blocked_writes
            happen = self._on_demand.get(request.path) if request.method == "POST" else None
            if happen is not None:
                happen(now)
                self._reply(conn, request, Reply(200, b'{"done":true}'))
                return
            self._reply(conn, request, truth_page(self.state, request, now))
            if request.method == "POST":
                self.net.blocked_writes = 0
            return
        options, persona = self.options, self.state.persona
        if self._chaos is not None and self._broken_page(conn, request):
            return
        if options.load_ns and now - self.state.began_ns < options.load_ns:
            self._reply(conn, request, refusal(persona, "loading", {}))
            return
        if options.api_key is not None and not self._authorised(request):
            self._reply(conn, request, refusal(persona, "unauthorized", {}))
            return
        if self._waits_for_model(conn, request, now):
            return
        path = self.state.swap.inner_path(request.path)
        if request.method == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
            self._generate(conn, request, chat=path == "/v1/chat/completions")
            return
        page = find_page(self.state, request)
        if page is None:
            self._reply(conn, request, refusal(persona, "not_found", {"path": request.path}))
            return
        self._reply(conn, request, page(self.state, request, now))

    def _waits_for_model(self, conn: Connection, request: Request, now: int) -> bool:
        """Hold back what needs a model that llama-swap has yet to load; return whether it is so."""
        if self.state.persona.name != "llama-swap":
            return False
        scheduler = self.state.scheduler
        busy = bool(scheduler.running or scheduler.waiting)
        ready_ns = self.state.swap.due_ns(request, now, busy=busy)
        if ready_ns <= now:
            return False

        def again() -> None:
            if conn.stream is HELD:
                conn.stream, conn.received_ns = None, now_ns()
                self.on_request(conn, request)

        conn.stream = HELD
        self.net.at(ready_ns, again)
        return True

    def _broken_page(self, conn: Connection, request: Request) -> bool:
        """Answer a page's request wrongly where it is its turn; return whether that was so."""
        if self._chaos is None or request.method != "GET":
            return False
        self._pages += 1
        wrong = self._chaos.page(self._pages)
        if wrong is None:
            return False
        data, after = wrong
        if data:
            self.net.write(conn, data)
        if after == "reset":
            self.net.drop(conn, reset=True)
        elif after is not None:
            self.net.end(conn)
        return True

    def on_gone(self, conn: Connection) -> None:
        """Abort what the connection was being served."""
        stream, conn.stream = conn.stream, None
        if isinstance(stream, Stream):
            self.delivery.close_books(stream)

    def _authorised(self, request: Request) -> bool:
        # Engines guard the API, not the health and metrics pages.
        guarded = request.path.startswith("/v1/") or request.path.startswith("/upstream/")
        given = request.headers.get("authorization", "")
        return not guarded or given == f"Bearer {self.options.api_key}"

    def _reply(self, conn: Connection, request: Request, reply: Reply) -> None:
        keep = request.keep_alive and self.options.keep_alive
        headers = {**self.state.persona.headers, "Content-Type": reply.content_type}
        headers.update(reply.headers)
        if not keep:
            headers["Connection"] = "close"
        head = response_head(reply.status, headers, length=len(reply.body))
        body = b"" if request.method == "HEAD" else reply.body
        self.net.write(conn, head + body)
        self.delivery.after(conn, keep_alive=keep)

    def _generate(self, conn: Connection, request: Request, *, chat: bool) -> None:
        state = self.state
        if state.first_request_ns is None:
            self._arm_events(conn.received_ns)
        trace = state.truth.open(conn.received_ns, conn.received_kind)
        trace.client_id = request.headers.get("x-request-id")
        order = self._limited() or read_order(state, request.body, chat=chat)
        if isinstance(order, Reply):
            trace.status, trace.ended_ns = order.status, now_ns()
            self._reply(conn, request, order)
            return
        try:
            faults = self._faults(request, trace)
            stream = self._begin(conn, request, trace, order, faults, chat=chat)
        except UsageError as error:
            trace.status, trace.ended_ns = 400, now_ns()
            facts = {"detail": str(error)}
            self._reply(conn, request, refusal(state.persona, "invalid", facts))
            return
        script = stream.answer.script
        if script is not None and script.reply is not None:
            trace.status = 0
            self.delivery.queue(stream, script.to_wire(script.reply))
            return
        job = Job(
            conn.received_ns,
            order.prompt_tok,
            stream.answer.scene.output_tok,
            order.cached_tok,
            stream,
        )
        stream.job = job
        self.delivery.queue(stream, stream.answer.opening())
        if conn.stream is stream:
            state.scheduler.submit(job)

    def _limited(self) -> Reply | None:
        scheduler = self.state.scheduler
        inflight = len(scheduler.running) + len(scheduler.waiting)
        if self._max_inflight and inflight >= self._max_inflight:
            return refusal(self.state.persona, "busy", {})
        return None

    def _faults(self, request: Request, trace: Trace) -> list[Named]:
        faults = [fault for fault in self.options.faults if fault.applies(trace.id)]
        if self._chaos is not None:
            faults += self._chaos.answer(trace.id)
        asked = request.headers.get("x-fault")
        if asked:
            faults += [fault for fault in parse_faults(asked) if fault.applies(trace.id)]
        if self.options.gzip and "gzip" in request.headers.get("accept-encoding", ""):
            faults.append(Named("gzip", "hold"))
        trace.fault = ";".join(fault.name for fault in faults) or None
        return faults

    def _begin(
        self,
        conn: Connection,
        request: Request,
        trace: Trace,
        order: Order,
        faults: list[Named],
        *,
        chat: bool,
    ) -> Stream:
        state = self.state
        keep = request.keep_alive and self.options.keep_alive
        stream = Stream(conn, trace, trace.id % len(state.workers), keep_alive=keep)
        number = f"{'chatcmpl' if chat else 'cmpl'}-{trace.id:016x}"
        answer = Answer(
            state.persona,
            Ids(number, state.created_s, state.model, chat),
            streamed=order.streamed,
            include_usage=order.include_usage,
            continuous_usage=order.continuous_usage,
            offset=order.offset,
            prompt_tok=order.prompt_tok,
            output_tok=order.output_tok,
            faults=faults,
            extra_headers=None if keep else {"Connection": "close"},
        )
        stream.answer, stream.reason, stream.offset = answer, order.reason, order.offset
        trace.prompt_tok, trace.cached_tok = order.prompt_tok, order.cached_tok
        trace.streamed = order.streamed
        if self.options.keep_token_times:
            trace.times = array("q")
        conn.stream = stream
        return stream

    def _arm_events(self, first_ns: int) -> None:
        """Set the timers of what is to happen once, counted from the first request's arrival."""
        options = self.options
        self.state.first_request_ns = first_ns
        planned = (
            (options.stall_at_ns, self._stall),
            (options.counter_reset_at_ns, self._reset_counters),
            (options.preempt_at_ns, self._preempt),
            (options.die_at_ns, self._die),
        )
        for after_ns, happen in planned:
            if after_ns is not None:
                at_ns = first_ns + after_ns
                self.net.at(at_ns, partial(happen, at_ns))

    def _stall(self, at_ns: int) -> None:
        self.state.scheduler.stall(at_ns, self.options.stall_ns)

    def _preempt(self, at_ns: int) -> None:
        scheduler = self.state.scheduler
        scheduler.preempt(at_ns, max(1, len(scheduler.running) // 2))

    def _die(self, at_ns: int) -> None:
        self.net.rest()
        self.net.at(at_ns + self.options.reborn_after_ns, self._be_reborn)

    def _be_reborn(self) -> None:
        """Begin anew on the same port: another process, perhaps with another model."""
        options, state = self.options, self.state
        self.options = replace(options, model=options.reborn_model or options.model)
        state.serve(self.options)
        now = now_ns()
        reset(state, now)
        state.created_s = int(utc_now().timestamp())
        self._listen(self.port)

    def _reset_counters(self, at_ns: int) -> None:
        reset(self.state, at_ns)
