import os
import socket
import ssl
import tempfile
import threading
from contextlib import contextmanager

import pytest
import trustme

from concbench.observe.job import Job
from concbench.observe.poll import ABSENT_EVERY, ACTIVITY_EVERY, RENEW_EVERY, Poller
from concbench.observe.spool import Writer, read_records

from .server import serving


@contextmanager
def polling(url, **fields):
    with tempfile.TemporaryFile() as file:
        writer, seen = Writer(file.fileno()), []
        job = Job(base_url=url, engine="vllm", **{"metrics_path": "/metrics", **fields})
        poller = Poller(job, writer, lambda kind, at, body: seen.append((kind, body)))
        yield poller, lambda: list(read_records(file.fileno(), 0)), seen, writer
        poller._close()


def test_pages_in_order_over_one_connection_with_the_key():
    pages = {"/metrics": lambda n: (200, b"m%d" % n), "/slots": lambda n: (200, b"[]")}
    headers = {"Authorization": "Bearer secret"}
    with (
        serving(pages) as fake,
        polling(fake.url, slots_path="/slots", headers=headers) as (poller, records, seen, writer),
    ):
        for _ in range(RENEW_EVERY):
            poller.step(False)
        assert len(fake.connections) == 1
        poller.step(False)
        assert len(fake.connections) == 2
        found = records()
        assert [r.kind for r in found[:4]] == ["metrics", "slots", "metrics", "slots"]
        assert found[2].body == b"m1"
        assert seen[0] == ("metrics", b"m0")
        assert all(r.sent_ns <= r.received_ns and r.status == 200 for r in found)
        assert {key for _, key in fake.asked} == {"Bearer secret"}
        assert writer.slot.scrapes == len(found)


def test_refusals_are_records_and_an_absent_page_is_asked_for_seldom():
    with (
        serving({"/metrics": lambda n: (503, b"busy" * 1000)}) as fake,
        polling(fake.url, slots_path="/slots") as (poller, records, seen, writer),
    ):
        for _ in range(ABSENT_EVERY):
            poller.step(False)
        poller.step(True)
        assert fake.times("/metrics") == ABSENT_EVERY + 1
        assert fake.times("/slots") == 2
        assert {(r.kind, r.status) for r in records()} == {("metrics", 503), ("slots", 404)}
        assert max(len(r.body) for r in records()) == 512
        assert seen == []
        assert writer.slot.failed == ABSENT_EVERY + 3


def test_the_list_of_requests_is_asked_for_seldom_unless_asked():
    with (
        serving({"/a": lambda n: (200, b"[]")}) as fake,
        polling(fake.url, metrics_path=None, activity_path="/a") as (poller, *_),
    ):
        for _ in range(ACTIVITY_EVERY):
            poller.step(False)
        assert fake.times("/a") == 1
        poller.step(True)
        assert fake.times("/a") == 2


def test_nobody_there_is_a_record():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        with polling(url) as (poller, records, _, _):
            poller.step(False)
            assert [(r.status, r.body) for r in records()] == [(0, b"refused")]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", b"reset"),
        (b"SSH-2.0\r\n", b"not_http"),
        (b"HTTP/1.1 200 OK\r\n", b"timeout"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", b"not_http"),
    ],
)
def test_what_is_no_answer_is_a_record(said, why):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with polling(url, timeout_s=0.2) as (poller, records, _, _):

            def answer() -> None:
                peer, _ = server.accept()
                peer.recv(4096)
                peer.sendall(said)
                if why == b"timeout":
                    peer.recv(1)
                peer.close()

            thread = threading.Thread(target=answer)
            thread.start()
            poller.step(False)
            thread.join()
            assert [(r.status, r.body) for r in records()] == [(0, why)]


@pytest.mark.parametrize("trust", ["ca", "insecure", "nothing"])
def test_tls_with_its_ca_or_without_asking(tmp_path, trust):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    fields = {"ca": str(tmp_path / "ca.pem")} if trust == "ca" else {}
    fields |= {"insecure": True} if trust == "insecure" else {}
    with (
        serving({"/metrics": lambda n: (200, b"m")}, context) as fake,
        polling(fake.url, **fields) as (poller, records, _, _),
    ):
        poller.step(False)
        assert records()[0].status == (0 if trust == "nothing" else 200)
        if trust == "nothing":
            assert records()[0].body == b"tls"


def test_an_unreadable_ca_is_said_at_the_start():
    with pytest.raises(OSError, match="No such file"), polling("https://h", ca=os.devnull + "x"):
        pass


def test_no_key_in_a_repr():
    job = Job(base_url="http://h", engine="vllm", headers={"Authorization": "Bearer secret"})
    assert "secret" not in repr(job)
