"""The queue against a sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from cutaway.scheduler.ordered_queue import OrderedQueue


@given(st.lists(st.tuples(st.sampled_from(["push", "take", "first", "take first"]), st.integers(0, 40)), max_size=200))
def test_the_queue_is_a_sorted_list(calls: list[tuple[str, int]]) -> None:
    queue, model = OrderedQueue[str](), dict[int, str]()
    for call, key in calls:
        if call == "push" and key not in model:
            model[key] = f"item {key}"
            queue.push(key, model[key])
        elif call == "take":
            assert queue.take(key) == model.pop(key, None)
        elif call == "take first" and model:
            assert queue.take(min(model)) == model.pop(min(model))
        assert queue.first() == (model[min(model)] if model else None)
        assert len(queue) == len(model)


def test_the_order_survives_the_clearing() -> None:
    queue = OrderedQueue[int]()
    for key in range(99, -1, -1):
        queue.push(key, key)
    for key in range(50, 100):
        queue.take(key)
    for key in range(0, 50, 2):
        queue.take(key)
    seen = []
    while (first := queue.first()) is not None:
        seen.append(queue.take(first))
    assert seen == list(range(1, 50, 2))


def test_keys_of_taken_items_do_not_pile_up() -> None:
    queue = OrderedQueue[int]()
    queue.push(-1, -1)  # stays at the front, so that nothing behind it is dropped by the way
    for key in range(10_000):
        queue.push(key, key)
        queue.take(key)
    assert len(queue._keys) < 50
