"""Random answers within a grammar, through the real sampler: logits at random, at a high temperature."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cutaway.grammar.grammar import Grammar
from cutaway.grammar.state import GrammarState
from cutaway.ops.cpu.threads import float_environment
from cutaway.sampling.history import NO_IDS, History
from cutaway.sampling.params import SamplingParams
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import NoiseKey, sample_row
from support.small_vocabulary import SmallVocabulary

CLOSING = (b'"', b"]", b"}", b",", b":")


def allowed_ids(state: GrammarState, V: int) -> list[int]:
    """The ids of the mask, bit by bit."""
    words = state.allowed.view(np.uint32).tolist()
    assert len(words) == -(-V // 32)
    ids = [32 * place + bit for place, word in enumerate(words) for bit in range(32) if word >> bit & 1]
    assert all(each < V for each in ids)
    return ids


def random_answer(
    grammar: Grammar, vocabulary: SmallVocabulary, seed: int, wild: int = 40, most: int = 600, **params: Any
) -> tuple[bytes, bool]:
    """(text, whether it came to its end). After ``wild`` tokens, what closes strings and brackets is likelier."""
    V = vocabulary.vocab_size
    (end,) = vocabulary.eos_ids
    state = grammar.start([end])
    rng = np.random.default_rng(seed)
    scratch = SamplerScratch.allocate(V)
    asked = SamplingParams(temperature=5.0, **params)
    ids: list[int] = []
    with float_environment():
        while len(ids) < most and not state.finished:
            logits = rng.normal(0, 5, V).astype(np.float32)
            if len(ids) > wild:
                logits[end] += 400
                for strength, token in enumerate(reversed(CLOSING)):
                    logits[vocabulary.tokens.index(token)] += 100 + 40 * strength
            history = History(NO_IDS, np.array(ids, np.int32), NO_IDS, state.allowed)
            token_id = sample_row(logits, asked, NoiseKey(seed, 0, len(ids)), scratch, history).token_id
            assert state.allowed.view(np.uint32)[token_id // 32] >> (token_id % 32) & 1
            if token_id == end:
                assert state.accepts
                return text_of(vocabulary, ids), True
            assert token_id not in vocabulary.specials
            ids.append(token_id)
            state.advance(token_id)
    return text_of(vocabulary, ids), state.finished


def after(grammar: Grammar, text: bytes) -> GrammarState:
    """The state after a text, byte by byte, in a vocabulary whose first tokens are the bytes."""
    state = grammar.start()
    for byte in text:
        state.advance(byte)
    return state


def text_of(vocabulary: SmallVocabulary, ids: Sequence[int]) -> bytes:
    """The bytes of the tokens."""
    return b"".join(vocabulary.tokens[each] for each in ids)
