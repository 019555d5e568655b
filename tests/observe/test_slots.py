import json

from hypothesis import given
from hypothesis import strategies as st

from concbench.observe.slots import SlotCounter, read_slots

from .server import FIXTURES


def slots(**tokens: int) -> bytes:
    return json.dumps(
        [
            {"is_processing": True, "id_task": int(task[1:]), "next_token": [{"n_decoded": n}]}
            for task, n in tokens.items()
        ]
    ).encode()


def told(counter, running, ended_tok, at):
    return {row.name: row.value for row in counter.rows(running, ended_tok, at, at + 1)}


def test_real_slots_at_rest():
    assert read_slots((FIXTURES / "llamacpp" / "slots.json").read_bytes()) == {}


def test_running_tasks_and_both_spellings():
    assert read_slots(slots(t4=7, t5=9)) == {4: 7, 5: 9}
    old = [{"is_processing": True, "id_task": 3, "next_token": {"n_decoded": 2}}]
    assert read_slots(json.dumps(old).encode()) == {3: 2}
    assert read_slots(b'{"error": 1}') is None
    assert read_slots(b"[[[") is None


def test_the_live_counter_adds_what_each_task_gained():
    counter = SlotCounter()
    assert told(counter, {1: 50}, None, 0) == {"running": 1, "generated_tok_live": 0}
    assert told(counter, {1: 60, 2: 5}, None, 1)["generated_tok_live"] == 15
    # Task 1 is gone, task 3 took its slot: nothing is taken back, and its 4 count.
    assert told(counter, {2: 9, 3: 4}, None, 2)["generated_tok_live"] == 23


def test_exact_where_the_counter_of_ended_requests_is_there():
    counter = SlotCounter()
    assert told(counter, {1: 50, 2: 10}, 1000.0, 0)["generated_tok"] == 1060
    # Task 1 ended with 64 tokens between the two readings of this poll: neither shows them.
    assert "generated_tok" not in told(counter, {2: 24}, 1000.0, 1)
    assert told(counter, {2: 38}, 1064.0, 2)["generated_tok"] == 1102


@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["is_processing", "id_task", "next_token", "n_decoded"]), inner
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_body_is_slots_or_none(body):
    found = read_slots(body)
    assert found is None or all(tokens >= 0 for tokens in found.values())
