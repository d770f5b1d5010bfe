"""Turns at the KV pool: what is kept, who waits, who doesn't."""

import gc
import threading

from patience import SECONDS, finishes

from cutaway.engine.turns import Turns


def test_a_request_of_the_same_thread_takes_over() -> None:
    def interleave() -> bool:
        turns, first, second = Turns(), object(), object()
        for ticket in (first, second, second, first, first, second):
            turns.take(ticket)
        return True

    assert finishes(interleave)


def test_giving_back_what_one_has_not_changes_nothing() -> None:
    turns, holder, waiter = Turns(), object(), object()
    turns.take(holder)
    turns.give_back(object())
    entered = threading.Event()
    threading.Thread(target=lambda: (turns.take(waiter), entered.set()), daemon=True).start()
    assert not entered.wait(0.2)
    turns.give_back(holder)
    assert entered.wait(SECONDS)


def test_other_threads_wait_for_the_end() -> None:
    turns, holder, waiter = Turns(), object(), object()
    turns.take(holder)
    entered = threading.Event()

    def wait() -> None:
        turns.take(waiter)
        entered.set()

    threading.Thread(target=wait, daemon=True).start()
    assert not entered.wait(0.2)
    turns.take(holder)
    turns.give_back(holder)
    assert entered.wait(SECONDS)


def test_each_of_many_threads_gets_its_turn_alone() -> None:
    turns, inside, most = Turns(), [0], [0]

    def work() -> None:
        for _ in range(50):
            ticket = object()
            turns.take(ticket)
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            inside[0] -= 1
            turns.give_back(ticket)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    assert most == [1]


def test_collected_garbage_may_give_back_inside() -> None:
    """The finalizer of a forgotten stream may run while the same thread is taking a turn."""
    turns = Turns()

    class Forgotten:
        def __init__(self) -> None:
            self.me = self  # only the collector ends it
            self.ticket = object()

        def __del__(self) -> None:
            turns.give_back(self.ticket)

    def work() -> bool:
        turns.take(Forgotten().ticket)
        with turns._changed:
            gc.collect()
        turns.take(object())
        return True

    assert finishes(work)
