"""The scheduler's decisions in small cases whose outcome is worked out by hand."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from cutaway.errors import CapacityError, InvalidRequestError, QueueFullError
from cutaway.memory.block_manager import BlockManager
from cutaway.memory.block_table import BlockCopy
from cutaway.scheduler.continuous import ContinuousPolicy
from cutaway.scheduler.decisions import DecisionLog
from cutaway.scheduler.limits import SchedulerLimits
from cutaway.scheduler.policy import Policy
from cutaway.scheduler.request import Request
from cutaway.scheduler.scheduler import Scheduler
from cutaway.scheduler.sequence import Rank
from cutaway.scheduler.static import StaticPolicy
from cutaway.scheduler.step import Ended, Sampled, Step


def scheduler_of(
    *,
    blocks: int = 100,
    block_length: int = 4,
    policy: Policy | None = None,
    max_step_tokens: int = 64,
    max_sequences: int = 4,
    **limits: int,
) -> Scheduler:
    """A scheduler with these limits, continuous unless a policy is given."""
    return Scheduler(
        BlockManager(blocks, block_length),
        SchedulerLimits(max_step_tokens, max_sequences, **limits),
        policy or ContinuousPolicy(),
    )


def request(name: str, length: int = 4, new: int = 3, **fields: Any) -> Request:
    """A prompt of ``length`` tokens that begins like no other's."""
    return Request(name, (sum(map(ord, name)), *range(1, length)), new, **fields)


def pieces_of(step: Step) -> list[tuple[str, int, int, bool]]:
    """(request, first position, number of tokens, whether a token is sampled) of each piece."""
    return [(piece.sequence.request.id, piece.start, piece.num_tokens, bool(piece.choices)) for piece in step.pieces]


def advance(scheduler: Scheduler, now: float = 0.0, token: int = 7) -> tuple[Step, list[Ended]]:
    """One step in which every choice gets this token."""
    step = scheduler.schedule(now)
    ended = scheduler.complete(step, [[Sampled(token)] * len(piece.choices) for piece in step.pieces])
    scheduler.check()
    return step, ended


def actions(scheduler: Scheduler, action: str) -> list[tuple[str, str]]:
    """Name and reason of the decisions of one kind."""
    return [(each.name, each.reason) for each in scheduler.log.read() if each.action == action]


def test_prompt_chunks_mix_with_single_tokens() -> None:
    scheduler = scheduler_of(max_step_tokens=8, max_sequences=3)
    scheduler.submit(request("a", 4, new=9))
    scheduler.submit(request("b", 10))
    scheduler.submit(request("c", 4))
    steps = [pieces_of(advance(scheduler)[0]) for _ in range(3)]
    assert steps == [
        [("a", 0, 4, True), ("b", 0, 4, False)],
        [("a", 4, 1, True), ("b", 4, 6, True), ("c", 0, 1, False)],
        [("a", 5, 1, True), ("b", 10, 1, True), ("c", 1, 3, True)],
    ]


def test_the_sequences_are_those_that_wait_or_run() -> None:
    """Of two choices one ends first; the other is still there."""
    scheduler = scheduler_of(max_sequences=2)
    scheduler.submit(request("a", num_choices=2))
    scheduler.submit(request("b"))
    names = [(each.name, each.state.value) for each in scheduler.sequences()]
    assert names == [("a[0,1]", "waiting"), ("b", "waiting")]
    step = scheduler.schedule(0.0)
    scheduler.complete(step, [[Sampled(7, ends=True), Sampled(7)]])
    names = [(each.name, each.state.value) for each in scheduler.sequences()]
    assert names == [("a[1]", "running"), ("b", "waiting")]


def test_an_old_prompt_leaves_a_token_of_the_budget_to_each_decode_behind_it() -> None:
    scheduler = scheduler_of(max_step_tokens=5, max_sequences=3)
    for name in "bc":
        scheduler.submit(request(name, 1, new=9, priority=1))
    advance(scheduler)
    scheduler.submit(request("a", 9, new=9))
    assert pieces_of(advance(scheduler)[0]) == [("a", 0, 3, False), ("b", 1, 1, True), ("c", 1, 1, True)]


def test_whole_prompts_and_decodes_take_turns() -> None:
    scheduler = scheduler_of(policy=ContinuousPolicy(chunked_prefill=False), max_step_tokens=8, max_sequences=3)
    scheduler.submit(request("a", 4, new=9))
    advance(scheduler)
    scheduler.submit(request("b", 10))
    steps = [pieces_of(advance(scheduler)[0]) for _ in range(5)]
    assert steps == [
        [("a", 4, 1, True)],
        [("b", 0, 8, False)],
        [("a", 5, 1, True)],
        [("b", 8, 2, True)],
        [("a", 6, 1, True), ("b", 10, 1, True)],
    ]


def test_the_youngest_pauses_then_is_preempted_and_computed_again() -> None:
    """4 blocks of 4. ``a`` comes to hold all; ``b`` gets its first token, finds no block, and loses the one it has."""
    scheduler = scheduler_of(blocks=4)
    scheduler.submit(request("a", 7, new=8))
    advance(scheduler)
    scheduler.submit(request("b", 4, new=4))
    steps = []
    while scheduler.has_work:
        step, ended = advance(scheduler)
        steps.append((pieces_of(step), [each.request_id for each in ended]))
    assert steps == [
        ([("a", 7, 1, True), ("b", 0, 4, True)], []),
        *[([("a", position, 1, True)], []) for position in range(8, 13)],
        ([("a", 13, 1, True)], ["a"]),
        ([("b", 0, 5, True)], []),
        ([("b", 5, 1, True)], []),
        ([("b", 6, 1, True)], ["b"]),
    ]
    assert actions(scheduler, "pauses") == [("b", "needs a block, none is free, is the youngest")]
    reason = "youngest; a needs a block and none is free; gives back 1 block"
    assert actions(scheduler, "preempted") == [("b", reason)]
    assert scheduler.num_preemptions == 1


def test_reasons_have_numbers() -> None:
    scheduler = scheduler_of(blocks=6, max_sequences=2)
    scheduler.submit(Request("a", tuple(range(12)), 4))
    advance(scheduler)
    scheduler.submit(Request("b", (*range(8), 99, 98, 97, 96, 95), 4))
    scheduler.submit(Request("c", (3, 2, 1), 4))
    advance(scheduler)
    assert actions(scheduler, "admitted") == [
        ("a", "0 of 3 blocks from the prefix cache"),
        ("b", "2 of 4 blocks from the prefix cache"),
    ]
    assert actions(scheduler, "waits") == [("c", "needs 1 of 2 rows, 0 free")]
    advance(scheduler)
    assert len(actions(scheduler, "waits")) == 1


def test_who_waits_for_blocks_is_told_how_many() -> None:
    scheduler = scheduler_of(blocks=4)
    scheduler.submit(request("a", 8, new=4))
    scheduler.submit(request("b", 8, new=2))
    advance(scheduler)
    assert actions(scheduler, "waits") == [("b", "needs 2 blocks, 2 free, 1 of them for those that run")]


def test_a_wait_is_written_once_though_its_numbers_change() -> None:
    """a takes a block each second step, while b waits for more blocks than there are."""
    scheduler = scheduler_of(blocks=18, block_length=2)
    scheduler.submit(request("a", 2, new=30))
    scheduler.submit(request("b", 34, new=2))
    for _ in range(12):
        advance(scheduler)
    assert actions(scheduler, "waits") == [("b", "needs 17 blocks, 17 free, 1 of them for those that run")]
    scheduler.submit(request("c", 34, new=2, priority=0))
    scheduler.abort("b")
    advance(scheduler)
    assert [name for name, _ in actions(scheduler, "waits")] == ["b", "c"]


def test_a_second_wait_is_written_again() -> None:
    log = DecisionLog(9)
    log.write_change(0, "a", "waits", "needs 2, 1 free")
    log.write_change(1, "a", "waits", "needs 2, 0 free")
    log.write(2, "b", "ended", "length")
    log.write_change(2, "a", "waits", "needs 2, 1 free")
    log.write(3, "a", "admitted", "2 blocks")
    log.write(4, "a", "preempted", "youngest")
    log.write_change(5, "a", "waits", "needs 2, 1 free")
    log.write_change(6, "c", "waits", "needs 1, 0 free")
    log.write_change(7, "a", "waits", "needs 2, 1 free")
    assert [(each.step, each.name) for each in log.read() if each.action == "waits"] == [
        (0, "a"),
        (5, "a"),
        (6, "c"),
        (7, "a"),
    ]


def test_choices_share_the_prompt_until_they_differ() -> None:
    """A prompt of 6 in blocks of 4: the first block stays shared, the second is copied but for the last writer."""
    scheduler = scheduler_of(blocks=9)
    scheduler.submit(request("a", 6, new=3, num_choices=3))
    step = scheduler.schedule(0.0)
    assert [piece.choices for piece in step.pieces] == [(0, 1, 2)]
    assert scheduler.complete(step, [[Sampled(1), Sampled(2, ends=True), Sampled(3)]]) == [Ended("a", 1, "stop")]
    assert scheduler.num_running == 2
    step = scheduler.schedule(0.0)
    first, second = (piece.sequence for piece in step.pieces)
    assert (first.ids[6:], second.ids[6:]) == ([1], [3])
    assert step.copies == [BlockCopy(second.blocks.blocks[1], first.blocks.blocks[1])]
    assert first.blocks.blocks[0] == second.blocks.blocks[0]
    assert scheduler.complete(step, [[Sampled(4)], [Sampled(5)]]) == []
    _, ended = advance(scheduler)
    assert ended == [Ended("a", 0, "length"), Ended("a", 2, "length")]


def test_a_prompt_that_is_scored_takes_the_rows_of_logits_that_others_leave() -> None:
    """Blocks of 4; 5 rows of logits. Of ``a``'s 9 tokens nothing is taken from the cache, though ``c`` computed it."""
    scheduler = scheduler_of(max_step_outputs=5, max_sequences=3)
    scheduler.submit(request("a", 9, new=1))
    advance(scheduler)
    scheduler.submit(request("b", 1, new=9))
    scheduler.submit(request("a", 9, new=3, scores_prompt=True))
    steps = [advance(scheduler)[0] for _ in range(4)]
    assert [[(piece.start, piece.num_tokens) for piece in step.pieces] for step in steps] == [
        [(0, 1), (0, 4)],
        [(1, 1), (4, 4)],
        [(2, 1), (8, 1)],
        [(3, 1), (9, 1)],
    ]


def test_without_kept_keys_each_token_costs_the_whole_sequence() -> None:
    blocks = BlockManager(20, 4, prefix_cache=False)
    scheduler = Scheduler(blocks, SchedulerLimits(5, 2), ContinuousPolicy(), keeps_kv=False)
    scheduler.submit(request("a", 6, new=3))
    steps = []
    while scheduler.has_work:
        steps.append([each[1:] for each in pieces_of(advance(scheduler)[0])])
        assert blocks.num_free == 20 or not steps[-1][0][2]  # dropped with each token
    assert steps == [
        [(0, 5, False)],
        [(5, 1, True)],
        [(0, 5, False)],
        [(5, 2, True)],
        [(0, 5, False)],
        [(5, 3, True)],
    ]


def test_a_static_batch_keeps_its_keys() -> None:
    with pytest.raises(InvalidRequestError, match="a static batch reserves its blocks") as caught:
        Scheduler(BlockManager(9, 4), SchedulerLimits(9, 2), StaticPolicy(), keeps_kv=False)
    assert caught.value.field == "kv"


def test_choices_are_complete_with_their_first_token() -> None:
    scheduler = scheduler_of()
    scheduler.submit(request("a", 6, new=1, num_choices=4))
    _, ended = advance(scheduler)
    assert ended == [Ended("a", choice, "length") for choice in range(4)]
    assert not scheduler.has_work


def test_choices_to_come_have_rows_of_their_own() -> None:
    scheduler = scheduler_of(max_step_tokens=9)
    scheduler.submit(request("a", 8, num_choices=3))
    scheduler.submit(request("b", 1, new=9))
    scheduler.submit(request("c", 1))
    advance(scheduler)
    assert actions(scheduler, "waits") == []  # the budget is used up before it is c's turn
    assert [piece[0] for piece in pieces_of(advance(scheduler)[0])] == ["a", "a", "a", "b"]
    assert actions(scheduler, "waits") == [("c", "needs 1 of 4 rows, 0 free")]


def test_rows_are_kept_for_choices_while_the_prompt_is_computed() -> None:
    scheduler = scheduler_of(max_step_tokens=9)
    scheduler.submit(request("a", 4, num_choices=3))
    scheduler.submit(request("b", 1, new=9))
    scheduler.submit(request("c", 1))
    assert [piece[0] for piece in pieces_of(advance(scheduler)[0])] == ["a", "b"]
    assert actions(scheduler, "waits") == [("c", "needs 1 of 4 rows, 0 free")]


def test_a_prompt_gets_the_tokens_that_a_preempted_decode_leaves() -> None:
    """Blocks of one token. ``c`` decodes, ``b`` goes before it and is a long prompt, ``a`` needs the last block."""
    scheduler = scheduler_of(blocks=24, block_length=1, max_step_tokens=3, max_sequences=3)
    scheduler.submit(request("a", 3, new=16))
    scheduler.submit(request("c", 3, new=12, priority=7))
    for _ in range(4):
        advance(scheduler)
    scheduler.submit(request("b", 8, new=4, priority=1))
    while not actions(scheduler, "preempted"):
        step, _ = advance(scheduler)
    assert actions(scheduler, "preempted")[0][0] == "c"
    assert [(name, count) for name, _, count, _ in pieces_of(step)] == [("a", 1), ("b", 2)]


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    scheduler = scheduler_of(blocks=5)
    scheduler.submit(request("fits", 11, new=10))  # 20 positions: the last token has none
    message = r"11 prompt tokens and 11 new need 6 blocks of 4 tokens.*has 5, for 20"
    with pytest.raises(CapacityError, match=message):
        scheduler.submit(request("a", 11, new=11))
    assert actions(scheduler, "refused")[0][0] == "a"


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"length": 0}, "ids", "ids is 0 tokens; it must be 1 at least"),
        ({"new": 0}, "max_new_tokens", "max_new_tokens is 0"),
        ({"num_choices": 0}, "num_choices", "is 0 choices; it must be 1 at least"),
        ({"priority": -1}, "priority", "must be 0 to 7"),
        ({"priority": 8}, "priority", "is 8; it must be 0 to 7"),
        ({"deadline": 0.0}, "deadline", "must lie ahead"),
        ({"deadline": float("nan")}, "deadline", "must lie ahead"),
    ],
)
def test_values_that_mean_nothing_are_refused(fields: dict[str, Any], field: str, message: str) -> None:
    scheduler = scheduler_of()
    made = request("a", **fields) if fields.get("length") != 0 else Request("a", (), 3)
    with pytest.raises(InvalidRequestError, match=message) as caught:
        scheduler.submit(made)
    assert caught.value.field == field
    assert not scheduler.has_work


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_step_tokens": 0}, "max_step_tokens is 0"),
        ({"max_step_tokens": 3}, "max_sequences is 4, and a step has 3"),
        ({"max_step_outputs": 3}, "max_sequences is 4, and a step has 3 rows of logits"),
    ],
)
def test_limits_that_mean_nothing_are_refused(fields: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        scheduler_of(**fields)


def test_one_is_no_plural() -> None:
    """In the messages of the queue and of the pool."""
    scheduler = scheduler_of(blocks=1, max_sequences=1, max_waiting=1)
    scheduler.submit(request("a", 1, new=1))
    with pytest.raises(QueueFullError, match=r"^1 choice with 1 token waits .* place for 1 more with 1 token\. "):
        scheduler.submit(request("b", 1, new=1))
    with pytest.raises(CapacityError, match=r"^1 prompt token and 9 new need 3 blocks of 4 tokens, .* has 1, for 4 t"):
        scheduler.submit(request("b", 1, new=9))
    advance(scheduler)
    assert actions(scheduler, "admitted") == [("a", "0 of 1 block from the prefix cache")]


def test_bulk_requests_take_no_other_place() -> None:
    """Of both kinds as many may wait as if there were no other, and who is refused waits for his own kind."""
    scheduler = scheduler_of(max_sequences=1, max_waiting=2, max_waiting_tokens=8)
    for name, bulk in (("a", True), ("b", False), ("c", True), ("d", False)):
        assert not bulk or scheduler.has_place_for_bulk(1, 4)
        scheduler.submit(request(name, bulk=bulk))
    assert not scheduler.has_place_for_bulk(1, 1)
    with pytest.raises(QueueFullError, match="2 choices with 8 tokens wait already, of at most 2 and 8"):
        scheduler.submit(request("e"))
    for now in range(4):
        scheduler.check()
        advance(scheduler, now=10.0 * now)
    assert [name for name, _ in actions(scheduler, "admitted")] == ["a", "b"]
    assert scheduler.has_place_for_bulk(1, 4)
    assert not scheduler.has_place_for_bulk(1, 5)
    assert not scheduler.has_place_for_bulk(2, 1)
    scheduler.submit(request("e"))
    with pytest.raises(QueueFullError) as caught:
        scheduler.submit(request("f"))
    assert caught.value.retry_after == 30.0  # the first of its own kind left after 30 s, though one of the other before
    scheduler.check()


@pytest.mark.parametrize("bucketed", [None, False, True])
def test_a_queue_that_is_refilled_leaves_no_row_empty(bucketed: bool | None) -> None:
    """One place to wait, four rows: as many are let in in the first step as if all had waited."""
    policy = ContinuousPolicy() if bucketed is None else StaticPolicy(bucketed=bucketed)
    scheduler = scheduler_of(policy=policy, max_waiting=1)
    later = [request(f"{number}", bulk=True) for number in range(9, -1, -1)]

    def refill() -> None:
        while later and scheduler.has_place_for_bulk(1, 4):
            scheduler.submit(later.pop())

    step = scheduler.schedule(0.0, refill)
    assert [piece.sequence.request.id for piece in step.pieces] == ["0", "1", "2", "3"]
    assert scheduler.num_waiting == 1
    assert len(later) == 5
    scheduler.check()


def calls_of_steps(length: int) -> int:
    """Calls of functions in three steps in which a prompt of so many tokens waits for blocks. Half of it is cached; the
    one that runs holds none of that.
    """
    scheduler = scheduler_of(blocks=length // 4 + 20, max_step_tokens=1 << 20)
    scheduler.submit(Request("first", tuple(range(length // 2)), 1))
    advance(scheduler)
    scheduler.submit(Request("runs", (5,) * 200, 50))
    advance(scheduler)
    scheduler.submit(Request("waits", tuple(range(length)), 4))
    advance(scheduler)
    advance(scheduler)
    assert [name for name, _ in actions(scheduler, "waits")] == ["waits"]
    calls = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    old = sys.getprofile()
    sys.setprofile(profile)
    try:
        for _ in range(3):
            step = scheduler.schedule(0.0)
            scheduler.complete(step, [[Sampled(7)] * len(piece.choices) for piece in step.pieces])
    finally:
        sys.setprofile(old)
    assert scheduler.num_waiting == 1
    return calls


def test_who_waits_is_not_looked_up_anew_in_each_step() -> None:
    """A prompt of twice as many blocks costs one more look of a bisection."""
    short, long = calls_of_steps(4096), calls_of_steps(8192)
    assert long <= short + 3 * 8, (short, long)


def test_a_second_request_of_one_id_is_refused() -> None:
    scheduler = scheduler_of()
    scheduler.submit(request("a"))
    with pytest.raises(InvalidRequestError, match="'a' has not ended"):
        scheduler.submit(request("a"))
    scheduler.abort("a")
    scheduler.submit(request("a"))


def test_a_full_queue_refuses_with_an_estimate() -> None:
    """One row; a request leaves the queue every second step of 10 s, so 3 places are free in about 60 s."""
    scheduler = scheduler_of(max_sequences=1, max_waiting=4, max_waiting_tokens=18)
    for name in "abcd":
        scheduler.submit(request(name, new=2))
    with pytest.raises(QueueFullError, match=r"4 choices with 16 tokens wait.*Try again later") as caught:
        scheduler.submit(request("e"))
    assert caught.value.retry_after is None
    for step in range(4):
        advance(scheduler, now=10.0 * step)
    scheduler.submit(request("e"))
    with pytest.raises(QueueFullError, match=r"Try again in about 20\.0 s") as caught:
        scheduler.submit(request("f", 7))  # 12 tokens wait in 3 choices; 7 more are 1 too many
    assert caught.value.retry_after == 20.0
    scheduler.submit(request("f", 6))
    with pytest.raises(QueueFullError) as caught:
        scheduler.submit(request("g", 2))  # 1 choice too many, and 2 tokens
    assert caught.value.retry_after == 20.0


def test_an_empty_queue_takes_any_request() -> None:
    scheduler = scheduler_of(max_waiting=1, max_waiting_tokens=1)
    scheduler.submit(request("a", 30, num_choices=4))
    assert scheduler.num_waiting == 4


def test_deadlines_end_what_waits_and_what_runs() -> None:
    scheduler = scheduler_of(max_sequences=1)
    for name, deadline in (("a", 5.0), ("b", 3.0), ("c", None), ("d", 4.0)):
        scheduler.submit(request(name, new=50, deadline=deadline))
    scheduler.abort("d")
    advance(scheduler, now=2.9)
    assert scheduler.overdue(2.9) is None
    assert scheduler.overdue(3.0) == "b"
    scheduler.abort("b", "deadline")
    assert scheduler.overdue(3.0) is None
    assert scheduler.overdue(9.0) == "a"
    scheduler.abort("a", "deadline")
    step, _ = advance(scheduler, now=9.0)
    assert pieces_of(step) == [("c", 0, 4, True)]
    assert actions(scheduler, "ended")[-2:] == [("b", "deadline"), ("a", "deadline")]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda scheduler: scheduler._deadlines.take((5.0, "a")), "requests with a deadline"),
        (lambda scheduler: scheduler._deadlines.push((7.0, "x"), request("x", deadline=7.0)), "requests with a deadl"),
        (lambda scheduler: scheduler._deadlines._keys.clear(), "not in its order"),
        (lambda scheduler: scheduler._state.waiting._buckets[None]._keys.clear(), "not in its order"),
        (lambda scheduler: scheduler._state.waiting._buckets[None]._items.popitem(), "not those that wait"),
        (lambda scheduler: setattr(scheduler._state.waiting.load(bulk=False), "num_tokens", 5), "queue counts"),
        (lambda scheduler: setattr(scheduler._state.waiting.load(bulk=True), "num_choices", 1), "queue counts"),
    ],
)
def test_the_check_finds_what_would_never_end_or_never_be_let_in(
    damage: Callable[[Scheduler], object], message: str
) -> None:
    scheduler = scheduler_of(max_sequences=1)
    scheduler.submit(request("a", deadline=5.0))
    scheduler.submit(request("b"))
    advance(scheduler)
    damage(scheduler)
    with pytest.raises(RuntimeError, match=message):
        scheduler.check()


def test_static_pads_to_the_longest_and_waits_for_the_slowest() -> None:
    """Prompts of 2, 5 and 3; answers of 1, 3 and 2: a rectangle of 3 rows with 5 + 3 columns, the last not computed."""
    scheduler = scheduler_of(policy=StaticPolicy(), blocks=9, max_step_tokens=7, max_sequences=3)
    for name, length, new in (("a", 2, 1), ("b", 5, 3), ("c", 3, 2), ("d", 1, 1)):
        scheduler.submit(request(name, length, new=new))
    seen = []
    for _ in range(5):
        step, ended = advance(scheduler)
        free = scheduler._state.blocks.num_free
        seen.append((pieces_of(step), step.num_pads, [each.request_id for each in ended], free))
    assert seen == [
        ([("b", 0, 2, False)], 4, [], 3),
        ([("a", 0, 1, False), ("b", 2, 2, False), ("c", 0, 2, False)], 1, [], 3),
        ([("a", 1, 1, True), ("b", 4, 1, True), ("c", 2, 1, True)], 0, ["a"], 3),
        ([("b", 5, 1, True), ("c", 3, 1, True)], 1, ["c"], 3),
        ([("b", 6, 1, True)], 2, ["b"], 9),
    ]
    assert pieces_of(advance(scheduler)[0]) == [("d", 0, 1, True)]


def test_a_static_step_of_pads_alone_is_a_step() -> None:
    """The longest row is aborted while the others' columns are still pads."""
    scheduler = scheduler_of(policy=StaticPolicy(), max_step_tokens=2, max_sequences=2)
    scheduler.submit(request("a", 5))
    scheduler.submit(request("b", 1, new=1))
    advance(scheduler)
    scheduler.abort("a")
    steps = [advance(scheduler) for _ in range(4)]
    assert [(len(step.pieces), step.num_pads) for step, _ in steps] == [(0, 2), (0, 2), (0, 2), (1, 1)]
    assert steps[-1][1] == [Ended("b", 0, "length")]


def test_bucketed_batches_are_of_similar_lengths() -> None:
    scheduler = scheduler_of(policy=StaticPolicy(bucketed=True), max_step_tokens=99, max_sequences=3)
    for name, length, new in (("a", 4, 1), ("b", 9, 1), ("c", 7, 1), ("d", 4, 2), ("e", 15, 1)):
        scheduler.submit(request(name, length, new=new))
    batches = []
    while scheduler.has_work:
        step, _ = advance(scheduler)
        batches.append(([piece.sequence.request.id for piece in step.pieces], step.num_pads))
    assert batches == [(["a", "c"], 3), (["b", "e"], 6), (["d"], 0), (["d"], 0)]


@pytest.mark.parametrize("choices", [1, 3])
@pytest.mark.parametrize(
    "make_policy",
    [
        ContinuousPolicy,
        partial(ContinuousPolicy, chunked_prefill=False),
        StaticPolicy,
        partial(StaticPolicy, bucketed=True),
    ],
)
def test_nobody_waits_longer_than_the_bound_under_endless_arrivals(
    make_policy: Callable[[], Policy], choices: int
) -> None:
    """Two newcomers of the best priority before each step, of other lengths and some with choices of their own, and one
    request of the last priority.
    """
    policy = make_policy()
    scheduler = scheduler_of(
        policy=policy, blocks=4, max_sequences=2, max_step_tokens=4, max_waiting=5, num_priorities=3, ageing=40
    )
    scheduler.submit(request("low", 5, new=4, priority=2, num_choices=choices))
    bound = scheduler.limits.longest_wait(9, 2, choices)
    ended: list[Ended] = []
    refused = 0
    for step in range(bound):
        for number in range(2):
            try:
                length = (5, 2)[number]
                scheduler.submit(request(f"{step}.{number}", length, new=2, num_choices=(1, choices)[step % 2]))
            except QueueFullError:
                refused += 1
        ended += advance(scheduler)[1]
        if sum(each.request_id == "low" for each in ended) == choices:
            break
    assert sum(each.request_id == "low" for each in ended) == choices
    assert len(ended) > 20
    assert refused > 20


def test_the_bound_without_a_cache_counts_what_each_token_takes() -> None:
    """One token a step: the k-th token takes k steps, and all of them more than a bound for one step a token."""
    blocks, limits = BlockManager(20, 4, prefix_cache=False), SchedulerLimits(1, 1, max_waiting=1)
    scheduler = Scheduler(blocks, limits, ContinuousPolicy(), keeps_kv=False)
    scheduler.submit(request("a", 1, new=60))
    steps = 0
    while scheduler.has_work:
        advance(scheduler)
        steps += 1
    assert steps == 60 * 61 / 2
    assert limits.longest_wait(61, 0) < steps <= limits.longest_wait(61, 0, keeps_kv=False)


def test_a_better_priority_goes_first_until_the_other_has_aged() -> None:
    def order(steps_between: int) -> list[str]:
        scheduler = scheduler_of(max_sequences=1, ageing=5)
        scheduler.submit(request("runs", new=steps_between + 1))
        advance(scheduler)
        scheduler.submit(request("low", new=1, priority=1))
        for _ in range(steps_between - 1):
            advance(scheduler)
        scheduler.submit(request("high", new=1))
        ended: list[str] = []
        while scheduler.has_work:
            ended += [each.request_id for each in advance(scheduler)[1]]
        return ended

    assert order(4) == ["runs", "high", "low"]
    assert order(9) == ["runs", "low", "high"]


def test_who_goes_before_all_takes_the_room_of_the_last() -> None:
    scheduler = scheduler_of(max_sequences=2)
    for name in "ab":
        scheduler.submit(request(name, new=20, priority=7))
    advance(scheduler)
    scheduler.submit(request("high", new=2))
    assert [piece[0] for piece in pieces_of(advance(scheduler)[0])] == ["high", "a"]
    assert actions(scheduler, "preempted")[0][0] == "b"


def test_a_step_that_failed_is_planned_again() -> None:
    scheduler = scheduler_of(max_step_tokens=6)
    scheduler.submit(request("a", 9))
    advance(scheduler)
    step = scheduler.schedule(0.0)
    with pytest.raises(ValueError, match="neither completed nor cancelled"):
        scheduler.schedule(0.0)
    scheduler.cancel(step)
    with pytest.raises(ValueError, match="not the one in flight"):
        scheduler.complete(step, [[]])
    again = scheduler.schedule(0.0)
    assert pieces_of(again) == pieces_of(step) == [("a", 6, 3, True)]
    with pytest.raises(ValueError, match="tokens for"):
        scheduler.complete(again, [[]])


def lines_of_a_step(policy: Policy, waiting: int) -> int:
    """Lines of Python that one step in the middle runs, with so many waiting behind those that run."""
    scheduler = scheduler_of(policy=policy, max_sequences=4, max_waiting=20_000, max_waiting_tokens=1 << 30)
    for number in range(waiting):
        scheduler.submit(request(f"{number:06}", 4, new=3, deadline=1e9 + number))
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    old = sys.gettrace()
    for _ in range(7):
        sys.settrace(trace)
        try:
            step = scheduler.schedule(0.0)
            scheduler.complete(step, [[Sampled(7)] * len(piece.choices) for piece in step.pieces])
        finally:
            sys.settrace(old)
    return count


@pytest.mark.parametrize("name", ["continuous", "static", "bucketed"])
def test_a_step_costs_the_same_however_many_wait(name: str) -> None:
    def policy() -> Policy:
        return ContinuousPolicy() if name == "continuous" else StaticPolicy(bucketed=name == "bucketed")

    few, many = lines_of_a_step(policy(), 50), lines_of_a_step(policy(), 10_000)
    assert many <= few + 50, (few, many)


def comparisons_of_a_step(monkeypatch: pytest.MonkeyPatch, policy: Policy, waiting: int) -> int:
    """Comparisons of two ranks in such a step, whoever makes them: those of sorted, min and heapq, too."""
    count = 0

    class CountedRank(Rank):
        def __lt__(self, other: tuple[object, ...]) -> bool:
            nonlocal count
            count += 1
            return super().__lt__(other)

    monkeypatch.setattr("cutaway.scheduler.scheduler.Rank", CountedRank)
    scheduler = scheduler_of(policy=policy, max_sequences=4, max_waiting=20_000, max_waiting_tokens=1 << 30)
    for number in range(waiting):
        scheduler.submit(request(f"{number:06}", 4, new=3))
    count = 0
    for _ in range(7):
        step = scheduler.schedule(0.0)
        scheduler.complete(step, [[Sampled(7)] * len(piece.choices) for piece in step.pieces])
    return count


@pytest.mark.parametrize("name", ["continuous", "static", "bucketed"])
def test_a_step_compares_a_logarithm_of_those_that_wait(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def policy() -> Policy:
        return ContinuousPolicy() if name == "continuous" else StaticPolicy(bucketed=name == "bucketed")

    few, many = (comparisons_of_a_step(monkeypatch, policy(), waiting) for waiting in (64, 8192))
    assert few > 0
    # 128 times as many are 7 levels of the heap more, with two comparisons at each; 12 leave it in these steps at most.
    assert many <= few + 12 * 7 * 2, (few, many)


def test_the_log_keeps_the_last() -> None:
    scheduler = Scheduler(BlockManager(9, 4), SchedulerLimits(9, 2), ContinuousPolicy(), num_decisions=3)
    for number in range(5):
        scheduler.submit(request(f"{number}", new=1))
        advance(scheduler)
    assert [(each.name, each.action) for each in scheduler.log.read()] == [
        ("3", "ended"),
        ("4", "admitted"),
        ("4", "ended"),
    ]
    assert str(scheduler.log.read()[-1]) == "step 4: 4 ended: length"
