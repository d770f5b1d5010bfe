"""``LLM`` with a real model: what it takes, what it refuses, that its answers are right and the same every way."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway import LLM, CutawayError, SamplingParams
from cutaway.engine.outputs import RequestOutput
from cutaway.errors import CapacityError, InvalidRequestError

FIXTURES = Path(__file__).parent.parent / "fixtures"
REFERENCE = np.load(FIXTURES / "smollm2_reference.npz")
PROMPTS = {each["name"]: each for each in json.loads((FIXTURES / "prompts.json").read_text("utf-8"))["prompts"]}
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
TEXT = "The capital of France is"

CLOSE_CALL = 0.2
"""Nats between the best token and the next. The reference computes in float32, the engine with activations in 8 bits:
where the best two are closer than this, the engine may rightly take the other one.
"""


def ids_of(output: RequestOutput) -> list[int]:
    return output.outputs[0].token_ids


def text_of(output: RequestOutput) -> str:
    return output.outputs[0].text


def prompt_of(name: str) -> list[int]:
    ids: list[int] = REFERENCE[f"{name}.ids"].tolist()
    return ids


# -- right


def sure(name: str) -> int:
    """How many greedy tokens the reference is sure of, from the first on."""
    margins = np.append(REFERENCE[f"{name}.greedy_margin"], 0.0)
    return int(np.flatnonzero(margins < CLOSE_CALL)[0])


def test_the_reference_is_sure_of_much() -> None:
    """So that the next test can't pass for want of anything to compare."""
    assert sum(map(sure, PROMPTS)) >= 120
    assert [name for name in PROMPTS if not sure(name)] == ["json"]


@pytest.mark.parametrize("name", [name for name in PROMPTS if sure(name)])
def test_greedy_answers_are_those_of_the_reference(llm: LLM, name: str) -> None:
    params = SamplingParams(temperature=0, max_tokens=sure(name), ignore_eos=True)
    assert ids_of(llm.generate(prompt_of(name), params)[0]) == REFERENCE[f"{name}.greedy_ids"].tolist()[: sure(name)]


def test_logprobs_are_those_of_the_reference(llm: LLM) -> None:
    """The first token after each prompt, among the reference's 24 most likely."""
    for name in PROMPTS:
        output = llm.generate(prompt_of(name), SamplingParams(temperature=0, max_tokens=1, logprobs=5))[0]
        assert output.outputs[0].logprobs is not None
        ours = {token: each.logprob for token, each in output.outputs[0].logprobs[0].items()}
        ids, values = REFERENCE[f"{name}.candidates"][-1], REFERENCE[f"{name}.logprobs"][-1]
        theirs = dict(zip(ids.tolist(), values.tolist(), strict=True))
        for token, value in ours.items():
            assert theirs[token] == pytest.approx(value, abs=0.5), f"{name}: {token}"


# -- shapes of prompts


def test_every_shape_of_a_prompt(llm: LLM) -> None:
    ids = llm.tokenizer.encode(TEXT)
    want = ids_of(llm.generate(TEXT, GREEDY)[0])
    shapes: list[Any] = [
        TEXT,
        ids,
        tuple(ids),
        list(np.array(ids)),
        {"prompt": TEXT},
        {"prompt_token_ids": ids},
        [TEXT],
        [ids],
        [{"prompt": TEXT}],
    ]
    for shape in shapes:
        (output,) = llm.generate(shape, GREEDY)
        assert ids_of(output) == want, shape
        assert output.prompt_token_ids == ids
        assert all(type(token) is int for token in output.prompt_token_ids)
        assert output.finished


def test_the_prompt_is_given_back(llm: LLM) -> None:
    text, ids, named = llm.generate([TEXT, [504], {"prompt": TEXT}], GREEDY)
    assert (text.prompt, ids.prompt, named.prompt) == (TEXT, None, TEXT)


def test_several_prompts_in_order(llm: LLM) -> None:
    prompts = ["One, two,", "The colour of the sky is", "def main("]
    alone = [ids_of(llm.generate(prompt, GREEDY)[0]) for prompt in prompts]
    assert [ids_of(each) for each in llm.generate(prompts, GREEDY)] == alone
    lengths = [len(ids_of(o)) for o in llm.generate(prompts, [SamplingParams(max_tokens=n) for n in (1, 2, 3)])]
    assert lengths == [1, 2, 3]


def test_the_default_is_16_tokens(llm: LLM) -> None:
    assert len(ids_of(llm.generate("1 2 3 4 5 6 7", SamplingParams(temperature=0))[0])) == 16


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (5, "prompts is a int; give a text"),
        (None, "prompts is a NoneType; give a text"),
        (b"text", "prompts is a bytes; give a text"),
        ({1, 2}, "prompts is a set; give a text"),
        (iter("ab"), "prompts is a str_ascii_iterator|prompts is a str_iterator"),
        ([], "prompts is empty"),
        ("", "the prompt is empty"),
        ([""], "the prompt is empty"),
        ([[]], "the prompt is empty"),
        (["fine", b"x"], "the prompt is a bytes; give a text"),
        ([1, "x"], "the prompt is a int; give a text"),
        ([1.0, 2.0], "the prompt is a float; give a text"),
        ([True, False], "prompt token 0 is True"),
        ([[1, None]], "prompt token 1 is None"),
        ([[1, -1]], "prompt token 1 is -1"),
        ([49152], "prompt token 0 is 49152; it must be an integer from 0 to 49151"),
        ({}, r"the prompt is \{\}; give either \{'prompt': text\}"),
        ({"prompt": TEXT, "prompt_token_ids": [1]}, r"the prompt is \{'prompt': str, 'prompt_token_ids': list\}"),
        ({"prompt": [1]}, r"the prompt is \{'prompt': list\}"),
        ({"prompt": {"prompt": TEXT}}, r"the prompt is \{'prompt': dict\}"),
        ({"prompt_token_ids": TEXT}, r"the prompt is \{'prompt_token_ids': str\}"),
        ({"text": TEXT}, r"the prompt is \{'text': str\}"),
        ({1: TEXT, "prompt": TEXT}, r"the prompt is \{1: str, 'prompt': str\}"),
        ("half a pair: \ud83d", "lone surrogate, U\\+D83D, at position 13"),
    ],
)
def test_prompts_of_wrong_shape(llm: LLM, prompts: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        llm.generate(prompts, GREEDY)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([GREEDY], "there are 2 prompts and 1 sampling_params"),
        ([GREEDY] * 3, "there are 2 prompts and 3 sampling_params"),
        ([], "there are 2 prompts and 0 sampling_params"),
        ({"temperature": 0}, r"sampling_params is \{'temperature': 0\}; give a SamplingParams"),
        ([GREEDY, 5], "sampling_params is 5; give a SamplingParams"),
        (0.7, r"sampling_params is 0\.7; give a SamplingParams"),
    ],
)
def test_params_of_wrong_shape(llm: LLM, params: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        llm.generate(["a", "b"], params)
    assert caught.value.field == "sampling_params"


def test_all_prompts_are_checked_before_the_first_is_computed(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm.runner, "step", None)  # a step would be a TypeError
    with pytest.raises(InvalidRequestError, match="token 0 is -1"):
        llm.generate([TEXT, [-1]], GREEDY)
    with pytest.raises(CapacityError, match="the prompt has 1024 tokens; the context holds 1024"):
        llm.generate([TEXT, [5] * 1024], GREEDY)
    with pytest.raises(InvalidRequestError, match="token 0 is -1"):
        llm.stream([-1])  # at once, not with the first delta


def test_the_context_can_be_filled_to_the_last_position(llm: LLM) -> None:
    output = llm.generate([5] * 1020, SamplingParams(max_tokens=None, ignore_eos=True))[0]
    assert len(ids_of(output)) == 4
    assert output.outputs[0].finish_reason == "length"


# -- text


@pytest.mark.parametrize("name", ["emoji", "chinese", "one_token"])
def test_the_deltas_join_to_the_text(llm: LLM, name: str) -> None:
    """Sampled far from the likeliest, so that characters come in parts, and parts come without the rest."""
    for seed in range(4):
        params = SamplingParams(temperature=1.8, seed=seed, max_tokens=30, ignore_eos=True)
        stream = llm.stream(prompt_of(name), params)
        deltas = list(stream)
        whole = stream.output().outputs[0]
        assert "".join(delta.text for delta in deltas) == whole.text == llm.tokenizer.decode(whole.token_ids)
        assert [token for delta in deltas for token in delta.token_ids] == whole.token_ids
        assert [delta.finish_reason for delta in deltas] == [None] * 29 + ["length"]


def test_the_stop_token_is_an_id_and_no_text(llm: LLM) -> None:
    ids = llm.tokenizer.encode_chat([{"role": "user", "content": "Say yes."}])
    output = llm.generate(ids, SamplingParams(temperature=0, max_tokens=200))[0].outputs[0]
    assert output.finish_reason == "stop"
    assert output.token_ids[-1] in llm.tokenizer.eos_ids
    assert not set(output.token_ids[:-1]) & llm.tokenizer.eos_ids
    assert output.text == llm.tokenizer.decode(output.token_ids)
    assert "<|im_end|>" not in output.text


# -- seeds, logprobs


def test_no_seed_is_a_fresh_one_which_is_echoed(llm: LLM) -> None:
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    first, second = llm.generate([TEXT, TEXT], params)
    assert first.seed != second.seed
    assert ids_of(first) != ids_of(second)
    again = llm.generate(TEXT, SamplingParams(max_tokens=20, ignore_eos=True, seed=first.seed))[0]
    assert (again.seed, ids_of(again)) == (first.seed, ids_of(first))


def test_a_seed_s_answer_does_not_depend_on_what_was_asked_before(llm: LLM) -> None:
    params = [SamplingParams(max_tokens=8, seed=seed) for seed in (3, 4, 3)]
    a, b, c = (ids_of(each) for each in llm.generate([TEXT] * 3, params))
    assert a == c
    assert a != b


def test_logprobs(llm: LLM) -> None:
    output = llm.generate(TEXT, SamplingParams(temperature=1.5, seed=1, max_tokens=16, logprobs=20))[0].outputs[0]
    assert output.logprobs is not None
    assert len(output.logprobs) == len(output.token_ids)
    total = 0.0
    for token, entries in zip(output.token_ids, output.logprobs, strict=True):
        assert token in entries
        assert len(entries) in (20, 21)
        assert sum(math.exp(each.logprob) for each in entries.values()) <= 1 + 1e-5
        assert entries[token].decoded_token == llm.tokenizer.decode([token], skip_special=False)
        others = sorted(entries.values(), key=lambda each: each.rank)
        assert [each.rank for each in others[:20]] == list(range(1, 21))
        assert [each.logprob for each in others] == sorted((each.logprob for each in others), reverse=True)
        total += entries[token].logprob
    assert output.cumulative_logprob == pytest.approx(total, rel=1e-6)


def test_the_logprobs_of_the_whole_vocabulary_sum_to_one(llm: LLM) -> None:
    """Through what a request can see: each logprob is the logit minus one and the same number, whose exponential
    is the sum over the vocabulary. The logits are still in the workspace after the only token."""
    output = llm.generate(TEXT, SamplingParams(temperature=0, max_tokens=1, logprobs=20))[0].outputs[0]
    assert output.logprobs is not None
    logits = llm.runner.workspace.logits[0].astype(np.float64)
    total = np.log(np.exp(logits - logits.max()).sum()) + logits.max()
    for token, each in output.logprobs[0].items():
        assert each.logprob == pytest.approx(logits[token] - total, abs=1e-5)


@pytest.mark.parametrize("other", [{"temperature": 0.3}, {"temperature": 0, "top_k": 1}, {"top_p": 0.01, "min_p": 0.9}])
def test_logprobs_are_the_model_s_own(llm: LLM, other: dict[str, Any]) -> None:
    def first(**params: Any) -> dict[int, float]:
        output = llm.generate(TEXT, SamplingParams(seed=1, max_tokens=1, logprobs=20, **params))[0].outputs[0]
        assert output.logprobs is not None
        return {token: each.logprob for token, each in output.logprobs[0].items() if each.rank <= 20}

    assert first(**other) == first(temperature=2.0)


def test_without_logprobs_there_are_none(llm: LLM) -> None:
    stream = llm.stream(TEXT, SamplingParams(max_tokens=2))
    assert [delta.logprobs for delta in stream] == [None, None]
    output = stream.output().outputs[0]
    assert (output.logprobs, output.cumulative_logprob) == (None, None)
    zero = llm.generate(TEXT, SamplingParams(max_tokens=2, logprobs=0))[0].outputs[0]
    assert zero.logprobs is not None
    assert [list(each) for each in zero.logprobs] == [[token] for token in zero.token_ids]


def test_statistics_count(llm: LLM) -> None:
    statistics = llm.generate([1, 2, 3], GREEDY)[0].statistics
    assert (statistics.prompt_tokens, statistics.generated_tokens) == (3, 12)
    assert statistics.prefill_seconds > 0
    assert statistics.decode_rate > 0


# -- the same every way


def long_prompt(llm: LLM) -> list[int]:
    ids = prompt_of("long") + prompt_of("code") + prompt_of("german_french")
    assert len(ids) > 600
    return ids


def test_chunks_of_the_prompt_change_nothing(llm: LLM, smollm2_path: Path) -> None:
    params = SamplingParams(temperature=0, max_tokens=6, logprobs=3)
    want = llm.generate(long_prompt(llm), params)[0].outputs[0]
    for size in (333, 64):
        with LLM(smollm2_path, threads=2, max_model_len=1024, max_num_batched_tokens=size) as other:
            assert other.generate(long_prompt(llm), params)[0].outputs[0] == want, size


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_changes_nothing(llm: LLM, smollm2_path: Path, threads: int) -> None:
    params = SamplingParams(temperature=0.8, seed=4, max_tokens=12, logprobs=3, ignore_eos=True)
    prompts = [prompt_of("code"), TEXT]
    want = [each.outputs[0] for each in llm.generate(prompts, params)]
    with LLM(smollm2_path, threads=threads, max_model_len=256) as other:
        assert [each.outputs[0] for each in other.generate(prompts, params)] == want
        assert [each.outputs[0] for each in llm.generate(prompts, params)] == want  # both at once in one process


def test_kv_in_float32(smollm2_path: Path) -> None:
    """Greedy answers as the reference's, where none is a close call."""
    with LLM(smollm2_path, threads=2, max_model_len=256, kv_dtype="f32") as exact:
        assert exact.runner.kv.keys.dtype == np.float32
        for name in ("english", "code"):
            params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
            assert ids_of(exact.generate(prompt_of(name), params)[0]) == REFERENCE[f"{name}.greedy_ids"].tolist()


# -- what can't be loaded


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"threads": 0}, "threads", "threads is 0; it must be 1 to 256"),
        ({"threads": -1}, "threads", "threads is -1; it must be 1 to 256"),
        ({"threads": 10**6}, "threads", "threads is 1000000; it must be 1 to 256"),
        ({"threads": True}, "threads", "threads is True; it must be an integer"),
        ({"threads": 2.0}, "threads", r"threads is 2\.0; it must be an integer"),
        ({"threads": "2"}, "threads", "threads is '2'; it must be an integer"),
        ({"kv_dtype": "f8"}, "kv_dtype", "kv_dtype is 'f8'; it must be one of f16, f32, int8"),
        ({"kv_dtype": None}, "kv_dtype", "kv_dtype is None; it must be one of f16, f32, int8"),
        ({"kv_dtype": []}, "kv_dtype", r"kv_dtype is \[\]; it must be one of f16, f32, int8"),
        ({"max_num_seqs": 0}, "max_num_seqs", "max_num_seqs is 0; it must be an integer from 1 to 4096"),
        ({"max_num_seqs": 5000}, "max_num_seqs", "max_num_seqs is 5000; it must be an integer from 1 to 4096"),
        ({"max_num_seqs": 2.0}, "max_num_seqs", r"max_num_seqs is 2\.0; it must be an integer"),
        ({"max_num_seqs": True}, "max_num_seqs", "max_num_seqs is True; it must be an integer"),
        ({"max_num_batched_tokens": -1}, "max_num_batched_tokens", "is -1; it must be an integer from 1 to 65536"),
        (
            {"max_num_seqs": 9, "max_num_batched_tokens": 8},
            "max_num_seqs",
            "max_num_seqs is 9 and max_num_batched_tokens 8; each running sequence needs a token",
        ),
        ({"kv_tokens": "1k"}, "kv_tokens", "kv_tokens is '1k'; it must be an integer from 1"),
        ({"kv_tokens": 100}, "kv_tokens", "kv_tokens is 100; one sequence may have 8192 positions, so it must be 8192"),
        ({"max_waiting": 0}, "max_waiting", "max_waiting is 0; it must be an integer from 1"),
        ({"max_waiting_tokens": 0}, "max_waiting_tokens", "max_waiting_tokens is 0; it must be an integer from 1"),
        ({"batching": "dynamic"}, "batching", "batching is 'dynamic'; it must be one of continuous, static, bucketed"),
        ({"batching": None}, "batching", "batching is None; it must be one of"),
        (
            {"batching": "static", "enable_prefix_caching": True},
            "enable_prefix_caching",
            "enable_prefix_caching is True, and batching is 'static'",
        ),
        (
            {"kv": "none", "enable_prefix_caching": True},
            "enable_prefix_caching",
            "enable_prefix_caching is True, and kv is 'none'",
        ),
        (
            {"batching": "bucketed", "enable_chunked_prefill": False},
            "enable_chunked_prefill",
            "enable_chunked_prefill is False, and batching is 'bucketed'",
        ),
        ({"enable_chunked_prefill": 1}, "enable_chunked_prefill", "is 1; it must be True or False"),
        ({"kv": "none", "batching": "static"}, "kv", "kv is 'none', and batching is 'static'"),
        ({"kv": []}, "kv", r"kv is \[\]; it must be one of none, contiguous, paged"),
        ({"max_model_len": 0}, "max_model_len", r"the context \(max_model_len, --context\) is 0; .* from 2 .* to 8192"),
        ({"max_model_len": 1}, "max_model_len", r"the context \(max_model_len, --context\) is 1; .* from 2 .* to 8192"),
        ({"max_model_len": -5}, "max_model_len", r"the context \(max_model_len, --context\) is -5; .* to 8192"),
        ({"max_model_len": 8193}, "max_model_len", r"the context \(max_model_len, --context\) is 8193; .* to 8192"),
        (
            {"max_model_len": 10**9},
            "max_model_len",
            r"the context \(max_model_len, --context\) is 1000000000; .* to 8192",
        ),
        (
            {"max_model_len": "x"},
            "max_model_len",
            r"the context \(max_model_len, --context\) is 'x'; it must be an integer|is 'x'; .* to 8192",
        ),
        ({"max_model_len": True}, "max_model_len", r"the context \(max_model_len, --context\) is True; .* to 8192"),
        ({"max_model_len": 64.0}, "max_model_len", r"the context \(max_model_len, --context\) is 64\.0; .* to 8192"),
    ],
)
def test_options_outside_their_limits(
    smollm2_path: Path, options: dict[str, Any], field: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is compiled or loaded."""
    monkeypatch.setattr("cutaway.engine.load._compile_aside", None)
    with pytest.raises(InvalidRequestError, match=message) as caught:
        LLM(smollm2_path, **options)
    assert caught.value.field == field


@pytest.mark.parametrize("model", [None, 5, b"smollm2", ["smollm2"]])
def test_a_model_that_is_neither_name_nor_path(model: Any) -> None:
    with pytest.raises(InvalidRequestError, match=r"^model is .*; it must be a name, such as 'smollm2'") as caught:
        LLM(model)
    assert caught.value.field == "model"


def test_the_smallest_context(smollm2_path: Path) -> None:
    with LLM(smollm2_path, threads=1, max_model_len=2) as tiny:
        assert len(ids_of(tiny.generate([504], SamplingParams(max_tokens=None))[0])) == 1
        with pytest.raises(CapacityError, match="the prompt has 2 tokens; the context holds 2"):
            tiny.generate([504, 504])


# -- the end


def test_a_closed_llm_says_so(smollm2_path: Path) -> None:
    with LLM(smollm2_path, threads=2, max_model_len=64) as llm:
        stream = llm.stream(TEXT, GREEDY)
        next(stream)
    llm.close()
    llm.close()
    for use in (lambda: llm.generate(TEXT), lambda: llm.stream(TEXT), lambda: next(stream)):
        with pytest.raises(CutawayError, match="this LLM is closed"):
            use()
    assert len(ids_of(stream.output())) == 1
    with pytest.raises(StopIteration):
        next(stream)


def test_whether_it_is_broken_may_be_asked_at_any_moment(smollm2_path: Path) -> None:
    """Also by a thread that has found it open just before another has closed it."""
    llm = LLM(smollm2_path, threads=1, max_model_len=32)
    assert not llm.is_broken
    llm.close()
    llm._closed = False
    assert not llm.is_broken


def test_closing_gives_the_memory_back(smollm2_path: Path) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    with LLM(smollm2_path, threads=2, max_model_len=8192) as llm:
        llm.generate([5] * 600, SamplingParams(max_tokens=1))
        loaded = resident()
    assert loaded - resident() > 80e6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contxt": 64}, "LLM has no option 'contxt'; it has model, threads, max_model_len, max_num_seqs,"),
        ({"tensor_parallel_size": 2}, "tensor_parallel_size is 2; LLM takes 1 alone. One process computes"),
        ({"tensor_parallel_size": True}, "tensor_parallel_size is True; LLM takes 1 alone"),
        ({"trust_remote_code": True}, "trust_remote_code is True; LLM takes False alone. No code of a model is ever"),
        ({"dtype": "float16"}, "dtype is 'float16'; LLM takes 'auto' alone"),
    ],
)
def test_options_of_vllm_that_ask_for_something_are_refused(
    smollm2_path: Path, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is loaded; those that ask for nothing are in tests/scripts."""
    monkeypatch.setattr("cutaway.engine.load.resolve", None)
    with pytest.raises(InvalidRequestError, match=message) as caught:
        LLM(smollm2_path, **options)
    assert caught.value.field == next(iter(options))


def test_options_of_requests_are_refused_by_name(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    for call in (lambda: llm.generate(TEXT, lora_request=object()), lambda: llm.chat(messages, lora_request=object())):
        with pytest.raises(InvalidRequestError, match=r"lora_request is .* takes None alone. There are no adapters"):
            call()
    with pytest.raises(InvalidRequestError, match=r"LLM\.generate has no option 'prompt'; it has prompts, "):
        llm.generate(TEXT, prompt=TEXT)
    with pytest.raises(InvalidRequestError, match=r"LLM\.chat has no option 'message'; it has messages, "):
        llm.chat(messages, message=TEXT)


def test_a_chat_template_in_place_of_the_models(smollm2_path: Path, llm: LLM) -> None:
    """SmolLM2's own is ChatML, with a system message of its own where there is none."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    with LLM(smollm2_path, threads=2, max_model_len=256, chat_template="chatml") as other:
        assert other.tokenizer.encode_chat(messages) == llm.tokenizer.encode_chat(messages)
        assert other.tokenizer.encode_chat(messages[1:]) != llm.tokenizer.encode_chat(messages[1:])
        assert ids_of(other.chat(messages, GREEDY)[0]) == ids_of(llm.chat(messages, GREEDY)[0])
    assert ids_of(llm.chat(messages, GREEDY, chat_template="chatml")[0]) == ids_of(llm.chat(messages, GREEDY)[0])


@pytest.mark.parametrize("given", ["nosuch", "gemma", "{% if %}"])
def test_a_chat_template_that_is_refused(smollm2_path: Path, given: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        LLM(smollm2_path, chat_template=given)
    assert caught.value.field == "chat_template"


def test_a_model_that_needs_a_template_is_refused_before_its_weights_are_loaded(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*arguments: Any, **options: Any) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr("cutaway.engine.load.ModelRunner", load)
    monkeypatch.setattr("cutaway.engine.load.compile_for_any_model", lambda _: None)
    path = tmp_path / "base.gguf"
    key = b"tokenizer.chat_template"
    path.write_bytes(smollm2_path.read_bytes().replace(key, key.upper(), 1))
    with pytest.raises(InvalidRequestError, match=r"probably a base model.*complete texts with generate\."):
        LLM(path, needs_chat=True)
    for options in ({"needs_chat": False}, {"needs_chat": True, "chat_template": "chatml"}):
        with pytest.raises(AssertionError, match="loaded"):
            LLM(path, **options)
