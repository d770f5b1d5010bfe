"""Chats of several turns with the real model: what is reused, what is computed again and why, what is refused."""

from typing import Any

import pytest

from cutaway import LLM, SamplingParams
from cutaway.engine.conversation import Conversation, TurnCost, check_messages
from cutaway.errors import CapacityError, InvalidRequestError
from cutaway.memory.kv_setting import PAGE_LENGTH

PARAMS = SamplingParams(temperature=0, max_tokens=24)


def turn(chat: Conversation, text: str, params: SamplingParams = PARAMS) -> TurnCost:
    stream = chat.ask(text, params)
    for _ in stream:
        pass
    return chat.answered(text, stream)


def test_only_the_new_message_is_computed(llm: LLM) -> None:
    llm.reset_prefix_cache()
    chat = Conversation(llm)
    first = turn(chat, "Name three colours.", SamplingParams(temperature=0, max_tokens=200))
    assert first == TurnCost(first.prompt_tokens, 0, 0)
    for question in ("Name one more.", "And one more."):
        known = len(chat._computed) - 1
        cost = turn(chat, question)
        assert cost.recomputed_tokens == 0
        assert cost.reused_tokens == known
        assert cost.new_tokens < 25


def test_a_turn_is_the_same_as_the_whole_conversation_at_once(llm: LLM) -> None:
    chat = Conversation(llm)
    turn(chat, "Name three colours.")
    turn(chat, "Which of them is the sky?")
    messages = list(chat.messages)
    llm.reset_prefix_cache()
    assert llm.chat(messages[:-1], PARAMS)[0].outputs[0].text == messages[-1]["content"]


def test_ids_that_the_tokenizer_would_not_choose_are_computed_again(llm: LLM) -> None:
    """An answer drawn in other pieces than its text is cut into: the history's ids differ from there on."""
    chat = Conversation(llm)
    ids = llm.tokenizer.encode(" wonderful")
    letters = [token for character in " wonderful" for token in llm.tokenizer.encode(character)]
    assert len(ids) == 1 < len(letters)
    turn(chat, "Hello.")
    force = SamplingParams(temperature=0, max_tokens=len(letters), bad_words=[], logit_bias=None)
    stream = chat.ask("Say it.", force)
    prompt = len(stream.prompt_token_ids)
    step = llm.runner.step

    def spelled(batch: Any) -> Any:
        logits = step(batch)
        place = int(batch.positions[-1]) - prompt + 1
        logits[:, letters[place]] = 1e4
        return logits

    llm.runner.step = spelled  # type: ignore[method-assign]
    try:
        for _ in stream:
            pass
    finally:
        del llm.runner.step  # type: ignore[method-assign]
    assert stream.output().outputs[0].text == " wonderful"
    chat.answered("Say it.", stream)
    cost = turn(chat, "Again.")
    assert 0 <= prompt - cost.reused_tokens < PAGE_LENGTH  # to the page in which the first letter of the answer lies
    assert cost.recomputed_tokens > 0


def test_undo_and_system(llm: LLM) -> None:
    chat = Conversation(llm)
    assert not chat.undo()
    turn(chat, "Hello.")
    before = list(chat.messages)
    turn(chat, "Name a colour.")
    assert chat.undo()
    assert chat.messages == before
    assert turn(chat, "Name a colour.").recomputed_tokens < PAGE_LENGTH
    chat.set_system("You answer in French.")
    assert chat.system == "You answer in French."
    cost = turn(chat, "Hello.")
    assert cost.recomputed_tokens > 10  # the system message stands before everything
    chat.set_system(None)
    assert chat.system is None
    assert chat.messages[:2] == before


def test_a_chat_that_fills_the_context_is_refused_and_loses_nothing(smollm2_path: Any) -> None:
    with LLM(smollm2_path, threads=2, max_model_len=128) as small:
        chat = Conversation(small)
        turn(chat, "Count from one to a hundred.")
        turn(chat, "Go on.", SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))
        before = list(chat.messages)
        with pytest.raises(CapacityError, match="tokens; the context holds 128"):
            chat.ask("Go on.", PARAMS)
        assert chat.messages == before
        chat.undo()
        turn(chat, "Stop.", SamplingParams(temperature=0, max_tokens=3))


def test_an_answer_that_is_stopped_stays_as_far_as_it_came(llm: LLM) -> None:
    chat = Conversation(llm)
    stream = chat.ask("Tell me a story.", SamplingParams(temperature=0, max_tokens=50))
    said = "".join(next(stream).text for _ in range(5))
    stream.close()
    chat.answered("Tell me a story.", stream)
    assert chat.messages[-1] == {"role": "assistant", "content": said}
    assert turn(chat, "Go on.").reused_tokens > 30


@pytest.mark.parametrize(
    "messages",
    [
        "hello",
        None,
        {"role": "user", "content": "x"},
        [5],
        [{"role": "user"}],
        [{"role": "user", "content": "x", "name": "y"}],
        [{"role": "robot", "content": "x"}],
        [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}],
        [{"role": "user", "content": ["x"]}],
        [{"role": "user", "content": None}],
        [{"role": ["user"], "content": "x"}],
        [{"role": "user", "content": "half a pair: \ud83d"}],
    ],
)
def test_messages_that_are_none(messages: Any) -> None:
    with pytest.raises(InvalidRequestError, match="messages"):
        check_messages(messages)


def test_a_system_message_that_is_no_text_is_refused_at_once(llm: LLM) -> None:
    chat = Conversation(llm)
    with pytest.raises(InvalidRequestError, match="system has a lone surrogate, U\\+DCFF, at position 0") as caught:
        chat.set_system("\udcff")
    assert (caught.value.field, chat.system) == ("system", None)
