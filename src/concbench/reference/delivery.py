"""Answers written as their tokens fall due, and the books of each.

The fast path is `deliver`: a token between the first and the last costs two concatenations, one
`send` and one reading of the clock.
"""

from __future__ import annotations

from concbench.clock import now_ns
from concbench.reference.books import count_end, count_first
from concbench.reference.net import Connection, Network
from concbench.reference.parts import Part
from concbench.reference.render import Usage, phrases
from concbench.reference.schedule import Job
from concbench.reference.state import State
from concbench.reference.stream import Stream

_BLOCKED = BlockingIOError


class Delivery:
    """Writes streams to their connections and closes their books."""

    def __init__(self, state: State, net: Network) -> None:
        options = state.options
        self.state = state
        self.net = net
        self._phrases = phrases(options.pace.tokens_per_chunk)
        # TLS writes raise their own exceptions and the proxy must see the bytes: no short cut.
        self._short_cut = options.tls_cert is None and not options.coalesce_ns

    def deliver(self, job: Job, count: int, due_ns: int) -> None:
        """Send tokens that are due: a scheduler's callback."""
        stream: Stream = job.owner
        if not stream.fast or job.state != "running":
            self._emit(stream, job, count, due_ns)
            return
        text = self._phrases[(stream.offset + job.sent_tok - count) & 255]
        data = stream.head + text + stream.tail
        conn = stream.conn
        if conn.out:
            conn.out += data
        else:
            try:
                sent = stream.send(data)
            except _BLOCKED:
                sent = 0
            except OSError:
                self.net.drop(conn)
                return
            if sent != len(data):
                self.net.keep(conn, data[sent:])
        now = now_ns()
        trace = stream.trace
        trace.last_ns = now
        trace.tokens += count
        if now - due_ns > trace.lateness_max_ns:
            trace.lateness_max_ns = now - due_ns
        if trace.times is not None:
            trace.times.append(now)
            trace.times.append(count)

    def _emit(self, stream: Stream, job: Job, count: int, due_ns: int) -> None:
        """Send the first token, the last, and any that a fault or a proxy has a hand in."""
        first, last = job.sent_tok == count, job.state == "done"
        trace, answer = stream.trace, stream.answer
        if first:
            count_first(self.state, stream.worker, job)
            trace.started_ns, trace.first_due_ns = job.started_ns, job.first_due_ns
        usage = Usage(
            job.prompt_tok,
            job.sent_tok,
            job.cached_tok,
            prompt_ms=(job.first_due_ns - job.started_ns) / 1e6,
            predicted_ms=(due_ns - job.first_due_ns) / 1e6,
        )
        if last:
            trace.finish = stream.reason
            count_end(self.state, stream.worker, job, stream.reason)
        parts = answer.emission(job.sent_tok - count, count, usage, stream.reason if last else None)
        lateness_ns = self.queue(stream, parts, due_ns)
        if answer.streamed:
            trace.lateness_max_ns = max(trace.lateness_max_ns, lateness_ns)
        if first and not last and answer.plain and self._short_cut:
            head, tail = answer.edges()
            size = len(head) + len(self._phrases[0]) + len(tail)
            stream.head, stream.tail = b"%x\r\n%b" % (size, head), tail + b"\r\n"
            stream.fast = True

    def queue(self, stream: Stream, parts: list[Part], due_ns: int = 0) -> int:
        """Write parts, or queue them behind those that wait; return now − due."""
        if stream.answer.script is not None:
            stream.outbox.extend(parts)
            self._pump(stream)
        elif parts:
            self.net.write(stream.conn, b"".join(part.data or b"" for part in parts))
            tokens = sum(part.tokens for part in parts)
            if tokens:
                self._stamp(stream, tokens)
            if parts[-1].kind in ("end", "body"):
                self._complete(stream)
        return now_ns() - due_ns

    def _pump(self, stream: Stream) -> None:
        """Write the parts whose time has come."""
        outbox, conn = stream.outbox, stream.conn
        while outbox and not stream.waiting and conn.stream is stream:
            part = outbox[0]
            if part.wait_ns:
                at_ns = (stream.written_ns or now_ns()) + part.wait_ns
                part.wait_ns = 0
                if at_ns > now_ns():
                    stream.waiting = True
                    self.net.at(at_ns, lambda: self._resume_pump(stream))
                    return
            outbox.popleft()
            if part.data:
                self.net.write(conn, part.data)
            stream.written_ns = now_ns()
            if conn.stream is not stream:
                return
            if part.tokens:
                self._stamp(stream, part.tokens)
            if part.after is not None:
                self._sever(stream, part.after)
            elif part.kind in ("end", "body"):
                self._complete(stream)

    def _resume_pump(self, stream: Stream) -> None:
        stream.waiting = False
        self._pump(stream)

    def _stamp(self, stream: Stream, tokens: int) -> None:
        now, trace = now_ns(), stream.trace
        if trace.first_ns < 0:
            trace.first_ns = now
        trace.last_ns = now
        trace.tokens += tokens
        if trace.times is not None:
            trace.times.extend((now, tokens))

    def _sever(self, stream: Stream, how: str) -> None:
        conn = stream.conn
        if how == "half_close":
            self.net.half_close(conn)
            self.close_books(stream)
            return
        conn.stream = None
        self.close_books(stream)
        if how == "reset":
            self.net.drop(conn, reset=True)
        else:
            self.net.end(conn)

    def _complete(self, stream: Stream) -> None:
        """The answer is written: the connection is free for the next request."""
        conn = stream.conn
        conn.stream = None
        self.close_books(stream)
        self.after(conn, keep_alive=stream.keep_alive)

    def close_books(self, stream: Stream) -> None:
        """Close the books of a stream; a job that still runs is cancelled."""
        trace, job = stream.trace, stream.job
        stream.outbox.clear()
        if trace.ended_ns < 0:
            trace.ended_ns = now_ns()
        if job is None:
            return
        stream.job = None
        if job.state in ("waiting", "running"):
            self.state.scheduler.cancel(job, now_ns())
            trace.finish = "abort"
            count_end(self.state, stream.worker, job, "abort")
        trace.started_ns, trace.preemptions = job.started_ns, job.preemptions
        trace.first_due_ns, trace.last_due_ns = job.first_due_ns, job.last_due_ns

    def after(self, conn: Connection, *, keep_alive: bool) -> None:
        """Wait for the next request, or close."""
        if keep_alive:
            self.net.resume(conn)
        else:
            self.net.end(conn)
