from __future__ import annotations

import contextlib
import itertools
import random
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from concbench.clock import now_ns
from concbench.reference.chaos import Chaos
from tests.reference.client import Client, chat_body, connected, serving, truth


def test_a_stream_says_what_the_truth_says():
    with connected("--keep-token-times") as client:
        before_ns = now_ns()
        got = client.chat(words=3, max_tokens=5, headers={"X_Request_Id": "mine"})
        (record,) = truth(client)
        times = client.call("GET", f"/truth/token_times?id={record['id']}").json()
    assert got.status == 200
    assert got.complete
    assert len(got.text().split()) == 5
    assert got.events()[-2]["usage"] == {
        "prompt_tokens": 15,
        "total_tokens": 20,
        "completion_tokens": 5,
    }
    assert (record["client_id"], record["tokens"], record["prompt_tok"]) == ("mine", 5, 15)
    assert (record["finish"], record["status"], record["streamed"]) == ("length", 200, True)
    stamps = [before_ns, record["received_ns"], record["first_ns"], record["last_ns"]]
    assert stamps == sorted(stamps)
    assert record["started_ns"] == record["received_ns"]
    assert record["first_due_ns"] == record["started_ns"] + 1_000_000
    assert record["last_due_ns"] == record["first_due_ns"] + 4_000_000
    assert record["first_ns"] >= record["first_due_ns"]
    assert record["last_ns"] >= record["last_due_ns"]
    lateness_ns = record["lateness_max_ns"]
    assert record["first_ns"] - record["first_due_ns"] <= lateness_ns + 100_000
    assert times["tokens"] == [1] * 5
    assert times["sent_ns"][0] == record["first_ns"]
    assert times["sent_ns"][-1] == record["last_ns"]
    assert times["sent_ns"] == sorted(times["sent_ns"])


def test_requests_are_stamped_by_the_kernel():
    with connected() as client:
        client.chat()
        assert truth(client)[0]["received_kind"] == "kernel"


def test_an_answer_that_is_not_streamed():
    with connected() as client:
        got = client.chat(max_tokens=4, stream=False)
        (record,) = truth(client)
    assert len(got.json()["choices"][0]["message"]["content"].split()) == 4
    assert got.json()["usage"]["completion_tokens"] == 4
    assert record["first_ns"] == record["last_ns"] >= record["last_due_ns"]
    assert record["tokens"] == 4


def test_the_same_prompt_gets_the_same_text_on_one_connection_and_another():
    with serving() as server:
        texts = []
        for _ in range(2):
            client = Client(server.port)
            texts += [client.chat(words=4).text(), client.chat(words=4).text()]
            client.close()
    assert len(set(texts)) == 1


def test_many_streams_each_get_all_their_tokens_and_the_sums_agree():
    with serving("--jitter", "0.5", "--tokens-per-chunk", "3") as server:
        clients = [Client(server.port) for _ in range(40)]
        for index, client in enumerate(clients):
            body = chat_body(words=index, max_tokens=20 + index)
            client.send("POST", "/v1/chat/completions", body)
        answers = [client.receive() for client in clients]
        page = clients[0].call("GET", "/truth").json()
        metrics = clients[0].call("GET", "/metrics").body.decode()
        for client in clients:
            client.close()
    assert [len(a.text().split()) for a in answers] == [20 + i for i in range(40)]
    assert sorted(r["tokens"] for r in page["requests"]) == [20 + i for i in range(40)]
    total = sum(20 + i for i in range(40))
    assert page["generated"] == total
    assert f'generation_tokens_total{{engine="0",model_name="reference"}} {total}.0' in metrics


def test_full_slots_queue_and_the_wait_is_in_the_truth():
    with serving("--slots", "1") as server:
        clients = [Client(server.port) for _ in range(3)]
        for client in clients:
            client.send("POST", "/v1/chat/completions", chat_body(max_tokens=10))
        for client in clients:
            assert client.receive().complete
        records = truth(clients[0])
        for client in clients:
            client.close()
    records.sort(key=lambda record: record["started_ns"])
    for before, after in itertools.pairwise(records):
        assert after["started_ns"] == max(before["last_due_ns"], after["received_ns"])


def test_steps_are_common_to_all_streams():
    argv = ("--decode-step", "--step-a-ms", "2", "--step-b-ms", "0.5", "--keep-token-times")
    with serving(*argv) as server:
        clients = [Client(server.port) for _ in range(3)]
        for client in clients:
            client.send("POST", "/v1/chat/completions", chat_body(max_tokens=10))
        for client in clients:
            assert client.receive().complete
        records = truth(clients[0])
        for client in clients:
            client.close()
    # With three in it a step lasts 3.5 ms, and all begin and end on a step.
    dues = sorted({r["first_due_ns"] for r in records} | {r["last_due_ns"] for r in records})
    assert len(dues) <= 6
    assert all(r["last_due_ns"] - r["first_due_ns"] >= 9 * 2_500_000 for r in records)


def test_pipelined_requests_are_answered_in_turn():
    with connected() as client:
        for words in (1, 2, 3):
            client.send("POST", "/v1/chat/completions", chat_body(words=words, stream=False))
        counts = [client.receive().json()["usage"]["prompt_tokens"] for _ in range(3)]
    assert counts == [13, 14, 15]


def test_a_client_that_goes_away_frees_its_slot():
    with serving("--slots", "1") as server:
        gone, stays = Client(server.port), Client(server.port)
        gone.send("POST", "/v1/chat/completions", chat_body(max_tokens=8000))
        assert gone.sock.recv(100)
        stays.send("POST", "/v1/chat/completions", chat_body(max_tokens=2))
        gone.close()
        assert stays.receive().complete
        records = truth(stays)
        stays.close()
    assert [record["finish"] for record in records] == ["abort", "length"]


def test_a_client_that_does_not_read_gets_everything_in_the_end():
    with connected("--itl-ms", "0.01", "--context", "200000") as client:
        client.send("POST", "/v1/chat/completions", chat_body(max_tokens=30_000))
        while truth_of_another(client) < 30_000:
            pass
        got = client.receive()
    assert got.complete
    assert len(got.text().split()) == 30_000


def truth_of_another(client: Client) -> int:
    other = Client(client.port)
    generated = int(other.call("GET", "/truth").json()["generated"])
    other.close()
    return generated


def test_close_ends_each_connection():
    with connected("--close") as client:
        got = client.chat()
        assert got.headers["connection"] == "close"
        assert client.sock.recv(10) == b""


def test_keys():
    with connected("--api-key", "s3cret") as client:
        assert client.call("GET", "/health").status == 200
        assert client.chat().status == 401
        assert client.chat(headers={"Authorization": "Bearer s3cret"}).status == 200


def test_refusals_are_in_the_truth():
    with connected("--context", "64") as client:
        assert client.chat(model="other").status == 404
        assert client.chat(words=200).status == 400
        assert client.call("POST", "/v1/completions", {"max_tokens": 1}).status == 400
        assert [record["status"] for record in truth(client)] == [404, 400, 400]
        assert client.call("GET", "/nowhere").status == 404


def test_a_loading_server_says_so_but_tells_the_truth():
    with connected("--persona", "llamacpp", "--model-load-s", "100") as client:
        got = client.call("GET", "/health")
        assert got.status == 503
        assert got.json()["error"]["message"] == "Loading model"
        assert client.chat().status == 503
        assert client.call("GET", "/truth").status == 200


def test_reset_forgets_and_since_selects():
    with connected() as client:
        client.chat(max_tokens=2)
        client.chat(max_tokens=3)
        first, second = truth(client)
        assert truth(client, f"?since={first['id']}") == [second]
        assert client.call("POST", "/truth/reset").json() == {"reset": True}
        assert client.call("GET", "/truth").json()["requests"] == []
        client.chat(max_tokens=4)
        page = client.call("GET", "/truth").json()
    assert page["generated"] == 4
    assert page["requests"][0]["id"] == second["id"] + 1


def test_a_buffering_proxy_lets_tokens_out_together():
    with connected("--coalesce-ms", "20") as client:
        client.send("POST", "/v1/chat/completions", chat_body(max_tokens=30))
        first = client.sock.recv(1 << 20)
        client.buffer = first
        got = client.receive()
    assert first.count(b"data: ") > 3
    assert len(got.text().split()) == 30


def test_gzip_only_for_those_who_accept_it():
    with connected("--gzip") as client:
        assert "content-encoding" not in client.chat().headers
        got = client.chat(headers={"Accept_Encoding": "gzip"})
        assert got.headers["content-encoding"] == "gzip"


def test_a_stall_moves_every_later_token():
    argv = ("--stall-at-s", "0.01", "--stall-s", "0.1", "--itl-ms", "2")
    with connected(*argv) as client:
        client.chat(max_tokens=20)
        (record,) = truth(client)
    assert record["last_due_ns"] - record["first_due_ns"] == 19 * 2_000_000 + 100_000_000


def test_too_many_in_flight_are_turned_away_by_llama_swap():
    with serving("--persona", "llama-swap", "--max-inflight", "1", "--ttft-ms", "2000") as server:
        first, second = Client(server.port), Client(server.port)
        first.send("POST", "/v1/chat/completions", chat_body())
        while not truth(second):
            pass
        got = second.chat()
        assert got.status == 429
        assert got.headers["retry-after"] == "1"
        assert got.json()["error"]["code"] == "concurrency_limit"
        assert first.receive().complete
        assert second.chat().status == 200
        first.close()
        second.close()


@pytest.mark.parametrize(
    ("fault", "complete", "tokens"),
    [("truncate=2", False, 2), ("reset=2", False, 2), ("clean-end=2", True, 2), ("split", True, 4)],
)
def test_faults_over_a_socket(fault: str, complete: bool, tokens: int):
    with connected() as client:
        got = client.chat(headers={"X_Fault": fault})
        other = Client(client.port) if not complete else client
        (record,) = truth(other)
        other.close()
    assert got.complete is complete
    assert record["tokens"] == tokens
    assert record["fault"] == fault.partition("=")[0]
    # A reset may overtake what the client has not read yet.
    assert len(got.text().split()) == tokens or fault.startswith("reset")


def test_a_hung_stream_stays_open_and_ends_with_the_client():
    with connected() as client:
        client.send("POST", "/v1/chat/completions", chat_body(), X_Fault="hang=1")
        client.sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.receive()


def test_a_half_closed_stream_ends_cleanly_for_tcp_only():
    with connected() as client:
        got = client.chat(headers={"X_Fault": "half-close=2"})
        assert not got.complete
        assert len(got.text().split()) == 2


def test_replies_instead_of_answers():
    with connected("--fault", "status=503@first=2") as client:
        assert [client.chat().status for _ in range(3)] == [503, 503, 200]
        assert client.chat(headers={"X_Fault": "status=302"}).headers["location"]
        assert client.chat(headers={"X_Fault": "nonsense"}).status == 400
        assert client.chat(headers={"X_Fault": "http10"}).text().count(" ") == 4


def test_a_fault_every_other_time():
    with connected("--fault", "status=500@every=2") as client:
        assert [client.chat().status for _ in range(4)] == [200, 500, 200, 500]


def test_an_endless_stream_outlives_its_limit():
    with connected() as client:
        client.send("POST", "/v1/chat/completions", chat_body(max_tokens=2), X_Fault="endless")
        while client.buffer.count(b'"content":" ') < 20:
            client.buffer += client.sock.recv(65536)


def test_https(tmp_path: Path):
    authority = trustme.CA()
    cert = authority.issue_cert("localhost")
    path = tmp_path / "server.pem"
    cert.private_key_and_cert_chain_pem.write_to_path(str(path))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with serving("--tls-cert", str(path)) as server:
        client = Client(server.port)
        client.sock = context.wrap_socket(client.sock, server_hostname="localhost")
        got = client.chat(max_tokens=6)
        (record,) = truth(client)
        client.close()
    assert len(got.text().split()) == 6
    assert record["received_kind"] == "user"


def counter(client: Client, name: str) -> float:
    rows: dict[str, Any] = {}
    for line in client.call("GET", "/metrics").body.decode().splitlines():
        if not line.startswith("#"):
            key, _, value = line.rpartition(" ")
            rows[key.partition("{")[0]] = float(value)
    return float(rows[name])


def test_the_vllm_counter_moves_with_each_token_and_llamacpps_at_the_end():
    for persona, name, live in (
        ("vllm", "vllm:generation_tokens_total", True),
        ("llamacpp", "llamacpp:tokens_predicted_total", False),
    ):
        with serving("--persona", persona, "--itl-ms", "25") as server:
            busy, other = Client(server.port), Client(server.port)
            busy.send("POST", "/v1/chat/completions", chat_body(max_tokens=40))
            while other.call("GET", "/truth").json()["generated"] < 3:
                pass
            middle = counter(other, name)
            assert busy.receive().complete
            assert counter(other, name) == 40
            assert (0 < middle < 40) if live else middle == 0
            busy.close()
            other.close()


def test_counters_that_lie():
    with connected("--counter-reset-at-s", "0", "--foreign-tok-per-s", "100000") as client:
        client.chat(max_tokens=10)
        assert counter(client, "vllm:generation_tokens_total") > 10
    with connected("--two-workers") as client:
        client.chat(max_tokens=10)
        seen = {counter(client, "vllm:generation_tokens_total") for _ in range(2)}
        assert seen == {0.0, 10.0}


def test_a_counter_reset_leaves_only_what_came_after():
    with connected("--counter-reset-at-s", "0.02", "--itl-ms", "2") as client:
        client.chat(max_tokens=30)
        assert 0 < counter(client, "vllm:generation_tokens_total") < 30
        assert client.call("GET", "/truth").json()["generated"] == 30


def test_preemption_on_command():
    with connected("--preempt-at-s", "0.01", "--itl-ms", "2") as client:
        got = client.chat(max_tokens=20)
        (record,) = truth(client)
        assert counter(client, "vllm:num_preemptions_total") == 1
    assert record["preemptions"] == 1
    assert len(got.text().split()) == 20


def _model_once_it_is_back(port: int) -> str:
    while True:
        try:
            client = Client(port)
        except ConnectionRefusedError:
            continue
        # What was connected just before the end is reset unanswered.
        try:
            got = client.call("GET", "/v1/models")
        except (ConnectionResetError, BrokenPipeError):
            continue
        finally:
            client.close()
        if got.status == 200:
            return str(got.json()["data"][0]["id"])


def _port_that_nobody_is_given() -> int:
    """A free port below those that the kernel hands out.

    A client that tries a closed port again and again may otherwise be given that very port as its
    own, be connected to itself, and hold the port when the server wants it back.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def test_death_and_rebirth_with_another_model():
    options = ("--die-at-s", "0.1", "--reborn-after-s", "0.05", "--reborn-model", "another")
    options += ("--port", str(_port_that_nobody_is_given()))
    with serving("--ttft-ms", "1", "--itl-ms", "20", *options) as server:
        client = Client(server.port)
        got = client.chat(max_tokens=50)
        assert not got.complete
        client.close()
        assert _model_once_it_is_back(server.port) == "another"
        client = Client(server.port)
        assert client.chat(max_tokens=1).status == 404
        client.close()


def test_chaos_is_the_same_for_a_seed():
    one, other = Chaos(7), Chaos(7)
    assert [one.answer(n) for n in range(200)] == [other.answer(n) for n in range(200)]
    assert [one.page(n) for n in range(200)] == [other.page(n) for n in range(200)]
    wrong = sum(bool(one.answer(n)) for n in range(2000))
    assert 0.2 * 2000 < wrong < 0.3 * 2000
    assert [Chaos(8).answer(n) for n in range(200)] != [one.answer(n) for n in range(200)]


@pytest.mark.parametrize("fault", ["endless-head", "drip=0", "two-lengths", "encoded", "odd-usage"])
def test_hostile_answers_leave_the_server_whole(fault: str):
    with serving("--ttft-ms", "1", "--itl-ms", "1", "--fault", f"{fault}@first=1") as server:
        client = Client(server.port)
        client.send("POST", "/v1/chat/completions", chat_body(max_tokens=3))
        assert client.sock.recv(65536)
        client.close()
        client = Client(server.port)
        assert client.chat(max_tokens=3).complete
        client.close()
