import os
import signal
import sys
import threading

import psutil
import pytest

from concbench.domain import ServerSample
from concbench.engines.registry import ENGINES
from concbench.observe.job import Job, job_for
from concbench.observe.observer import Observer
from concbench.observe.parse import samples, scrape_cost

from .server import generate, reference, serving, until

VLLM, LLAMACPP = ENGINES["vllm"], ENGINES["llamacpp"]
PAGE = b"vllm:generation_tokens_total %d\nvllm:num_requests_running 2\n"


def of(rows: list[ServerSample], name: str, source: str = "metrics") -> list[float]:
    return [r.value for r in rows if r.name == name and r.source == source and r.value is not None]


def events(rows: list[ServerSample]) -> set[str]:
    return {r.labels for r in rows if r.name == "event"}


def quick(url: str, engine: str = "vllm", **fields: object) -> Job:
    given = {"interval_ms": 20, "host": False, "gpu": False, "metrics_path": "/metrics", **fields}
    return Job(base_url=url, engine=engine, **given)


def test_a_round_begins_and_ends_with_a_reading():
    with (
        serving({"/metrics": lambda n: (200, PAGE % (10 * n))}) as fake,
        Observer.start(quick(fake.url, interval_ms=60_000)) as observer,
    ):
        until(lambda: observer.live().scrapes == 1, "the first reading")
        before = fake.times("/metrics")
        since = observer.mark()
        assert fake.times("/metrics") == before + 1
        rows = observer.samples(since, VLLM)
        # One at the mark, two at the end; none of those before.
        assert of(rows, "generated_tok") == [10.0 * (before + n) for n in range(3)]
        cost = scrape_cost(observer.take(since))
        assert cost.scrapes == 5
        assert cost.max_ms is not None


def test_the_reference_engines_counter_moves_meanwhile():
    with (
        reference("--persona", "vllm", "--itl-ms", "5", "--ttft-ms", "20") as url,
        Observer.start(
            Job(base_url=url, engine="vllm", metrics_path="/metrics", interval_ms=50)
        ) as observer,
    ):
        since = observer.mark()
        generate(url, 100)
        view = observer.live()
        rows = observer.samples(since, VLLM)
        counted = of(rows, "generated_tok")
        assert counted[-1] - counted[0] == 100
        assert len(set(counted)) > 3
        assert max(of(rows, "running")) == 1
        assert of(rows, "ttft_s_count")[-1] == 1
        assert of(rows, "cpu_cores", "host")
        assert events(rows) == set()
        assert view.generated_tok is not None
        assert view.generated_tok_per_s is None or view.generated_tok_per_s < 1000
        until(lambda: observer.cpu_s() > 0, "its own CPU time")


def test_llamacpps_slots_move_at_every_step():
    options = ("--persona", "llamacpp", "--itl-ms", "5", "--ttft-ms", "10")
    with (
        reference(*options) as url,
        Observer.start(quick(url, "llamacpp", slots_path="/slots")) as observer,
    ):
        since = observer.mark()
        generate(url, 100)
        rows = observer.samples(since, LLAMACPP)
        ended = of(rows, "generated_tok_at_end")
        assert set(ended) == {ended[0], ended[0] + 100}
        exact = of(rows, "generated_tok", "slots")
        assert exact == sorted(exact)
        assert exact[-1] - exact[0] == 100
        assert len(set(exact)) > 5
        live = of(rows, "generated_tok_live", "slots")
        assert 80 < live[-1] <= 100


@pytest.mark.parametrize(
    ("option", "label"), [("--two-workers", "two_workers"), ("--counter-reset-at-s", "restarted")]
)
def test_counters_that_cannot_be_used_are_told(option, label):
    value = () if option == "--two-workers" else ("0.1",)
    with (
        reference("--persona", "vllm", "--itl-ms", "5", option, *value) as url,
        Observer.start(quick(url)) as observer,
    ):
        since = observer.mark()
        generate(url, 60)
        assert label in events(observer.samples(since, VLLM))


def test_a_slow_server_is_not_asked_again_meanwhile():
    release, inside = threading.Event(), []

    def slow(number: int) -> tuple[int, bytes]:
        inside.append(number)
        if number == 1:
            release.wait(20)
        return 200, PAGE % number

    with serving({"/metrics": slow}) as fake, Observer.start(quick(fake.url)) as observer:
        until(lambda: len(inside) == 2, "the slow answer")
        since = observer.mark(fresh_s=0.2)
        assert len(inside) == 2
        release.set()
        until(lambda: observer.live().skipped > 3, "the ticks that went by")
        rows = observer.samples(since, VLLM)
        assert len(of(rows, "generated_tok")) >= 2


def test_a_log_file_and_the_key_is_in_no_command_line(tmp_path):
    log = tmp_path / "engine.log"
    log.write_bytes(b"Engine 000: Avg prompt throughput: 1.0 tokens/s, Running: 9 reqs\n")
    job = job_for(VLLM, "http://127.0.0.1:1/", api_key="sk-secret", log=log, local=False)
    assert job.metrics_path == "/metrics"
    with Observer.start(job) as observer:
        since = observer.mark()
        with log.open("ab") as file:
            file.write(
                b"Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: "
                b"24.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs\n"
            )
        rows = observer.samples(since, VLLM)
        assert of(rows, "log_output_tok_per_s", "log") == [24.0]
        assert of(rows, "log_running", "log") == [8.0]
        assert "scrape_failed" in events(rows)
        process = psutil.Process(observer.pid)
        assert "sk-secret" not in " ".join(process.cmdline() + list(process.environ().values()))


def test_a_command_as_log_ends_with_the_observer():
    script = "import time,sys; print('hello', flush=True); sys.stdin.read(); time.sleep(60)"
    job = quick("http://127.0.0.1:1", metrics_path=None, log_command=[sys.executable, "-c", script])
    with Observer.start(job) as observer:
        process = psutil.Process(observer.pid)
        until(lambda: bool(process.children()), "the command")
        child = process.children()[0]
        until(lambda: events(observer.samples(0, VLLM)) == {"log_unparsed"}, "its line")
    until(lambda: not child.is_running(), "the command's end")


def test_it_ignores_ctrl_c_and_has_its_own_session():
    with (
        serving({"/metrics": lambda n: (200, PAGE % n)}) as fake,
        Observer.start(quick(fake.url)) as observer,
    ):
        assert observer.pid is not None
        assert os.getsid(observer.pid) == observer.pid
        os.kill(observer.pid, signal.SIGINT)
        seen = observer.live().scrapes
        until(lambda: observer.live().scrapes > seen + 2, "further readings")
        assert observer.restarts == 0


def test_when_it_dies_it_is_started_once_more_and_then_lost():
    with (
        serving({"/metrics": lambda n: (200, PAGE % n)}) as fake,
        Observer.start(quick(fake.url)) as observer,
    ):
        since = observer.mark()
        first = observer.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: observer.pid not in (first, None) and observer.ready, "the second one")
        rows = observer.samples(since, VLLM)
        assert events(rows) == {"observer_restarted"}
        counted = of(rows, "generated_tok")
        assert counted == sorted(counted)
        second = observer.pid
        assert second is not None
        os.kill(second, signal.SIGKILL)
        until(lambda: observer.lost, "the loss")
        assert observer.pid is None
        assert "observer_lost" in events(observer.samples(observer.mark(), VLLM))


def test_it_ends_when_stdin_closes():
    observer = Observer.start(quick("http://127.0.0.1:1"))
    process = psutil.Process(observer.pid)
    observer.stop()
    observer.stop()
    assert not process.is_running()


def test_records_beyond_the_limit_are_dropped_at_a_mark(monkeypatch):
    monkeypatch.setattr("concbench.observe.observer.KEEP_BYTES", 300)
    with (
        serving({"/metrics": lambda n: (200, PAGE % n)}) as fake,
        Observer.start(quick(fake.url)) as observer,
    ):
        until(lambda: observer.live().scrapes > 5, "some readings")
        since = observer.mark()
        rows = of(observer.samples(since, VLLM), "generated_tok")
        assert rows == of(samples(observer.take(0), VLLM), "generated_tok")[: len(rows)]
        assert rows[0] > 4


def test_the_usual_jobs():
    job = job_for(LLAMACPP, "http://h", prefix="/upstream/m", own={"engine": (7,)})
    assert job.paths == ("/upstream/m/metrics", "/upstream/m/slots")
    assert job.own == {"engine": [7]}
    assert job_for(ENGINES["openai"], "http://h").paths == ()
    assert job_for(ENGINES["llama-swap"], "http://h").paths == ("/api/metrics/activity",)
    assert job_for(VLLM, "http://h", log=["docker", "logs"]).log_command == ["docker", "logs"]
