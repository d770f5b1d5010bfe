"""Files that can't be run: one error each, with value, limit and remedy; and small random models that can."""

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cutaway.engine.compile import step_arguments
from cutaway.errors import ModelFileError
from cutaway.formats.blocks import BY_NAME
from cutaway.formats.gguf import open_gguf
from cutaway.formats.source import ModelSource
from cutaway.formats.tensor import Tensor
from cutaway.model.config import SCALING_KEYS, SCALING_NOT_READ, ModelConfig, read_config
from cutaway.model.families import UNSUPPORTED
from cutaway.model.forward import rebind
from cutaway.model.loader import LoadedModel, load_model
from cutaway.model.positions import Rope
from cutaway.model.reference import load_reference
from cutaway.ops.arguments import make_argument
from support.bits import differing
from support.rig import Part, log_softmax, run_reference, run_schedule
from support.tiny_llama import (
    Metadata,
    Tensors,
    TinySizes,
    random_blocks,
    tiny_metadata,
    tiny_tensors,
    write_gguf,
    write_tiny_llama,
)

SIZES = TinySizes()
IDS = [(5 * i * i + 3) % SIZES.vocab_size for i in range(90)]


def load_spoiled(
    path: Path,
    spoil: Callable[[Metadata, Tensors], Any],
    loader: Callable[..., Any] | None = None,
    architecture: str = "llama",
) -> Any:
    """Load a tiny model after ``spoil`` has changed its metadata or tensors."""
    metadata, tensors = tiny_metadata(SIZES, architecture), tiny_tensors(SIZES, architecture=architecture)
    spoil(metadata, tensors)
    with open_gguf(write_gguf(path / "spoiled.gguf", metadata, tensors)) as gguf:
        return loader(gguf) if loader else load_model(gguf, threads=1)


def put(key: str, value: Any) -> Callable[[Metadata, Tensors], None]:
    return lambda metadata, tensors: metadata.update({key: value})


def without(key: str) -> Callable[[Metadata, Tensors], None]:
    return lambda metadata, tensors: metadata.pop(key)


def put_tensor(name: str, array: Any, type_name: str) -> Callable[[Metadata, Tensors], None]:
    return lambda metadata, tensors: tensors.update({name: (array, type_name)})


def without_tensor(*names: str) -> Callable[[Metadata, Tensors], None]:
    return lambda metadata, tensors: [tensors.pop(name) for name in names]


def blocks(rows: int, columns: int, name: str = "Q4_1") -> Any:
    return random_blocks("spoiled", name, rows, columns)


ONES = np.ones(SIZES.width, np.float32)
REFUSED: dict[str, tuple[Callable[[Metadata, Tensors], Any], str]] = {
    "architecture": (
        put("general.architecture", "qwen3moe"),
        r"the architecture is 'qwen3moe'; Cutaway runs gemma2, gemma3, gpt2, llama, phi3, qwen2, qwen3, smollm3\. Use",
    ),
    "experts": (put("llama.expert_count", 8), r"llama\.expert_count is 8, a mixture of experts.* Use a model without"),
    "scaled rope": (
        put("llama.rope.scaling.type", "yarn"),
        r"the scaling 'yarn' of rotary positions lacks the parameters factor\.",
    ),
    "unknown rope": (
        put("llama.rope.scaling.type", "foo"),
        r"the scaling of rotary positions is 'foo'; Cutaway knows none, linear, dynamic, llama3, yarn\.",
    ),
    "rope of a number": (put("llama.rope.scaling.type", 3), r"llama\.rope\.scaling\.type is 3; it must be a name"),
    "unknown parameter of rope": (
        put("llama.rope.scaling.yarn_log_multiplier", 0.1),
        r"llama\.rope\.scaling\.yarn_log_multiplier is 0\.1\d*, a scaling .* that Cutaway does not compute",
    ),
    "negative window": (
        put("llama.attention.sliding_window", 2**31),
        r"attention\.sliding_window is 2147483648; it must be 0 to",
    ),
    "windows": (
        put("llama.attention.sliding_window", [512, 0]),
        r"'llama\.attention\.sliding_window' has the type .*; it must be int",
    ),
    "pattern of other layers": (
        lambda metadata, tensors: metadata.update(
            {"llama.attention.sliding_window": 9, "llama.attention.sliding_window_pattern": [True, False, True]}
        ),
        r"attention\.sliding_window_pattern is 3 values for 2 layers",
    ),
    "no architecture": (
        lambda metadata, tensors: (
            metadata.update({"general.architecture": "llama"}) or metadata.pop("llama.block_count")
        ),
        r"metadata 'llama\.block_count' is missing",
    ),
    "no width": (without("llama.embedding_length"), r"metadata 'llama\.embedding_length' is missing"),
    "no base": (without("llama.rope.freq_base"), r"metadata 'llama\.rope\.freq_base' is missing"),
    "no epsilon": (
        without("llama.attention.layer_norm_rms_epsilon"),
        r"metadata 'llama\.attention\.layer_norm_rms_epsilon' is missing",
    ),
    "heads of a layer each": (
        put("llama.attention.head_count", [6, 6]),
        r"metadata 'llama\.attention\.head_count' has the type .*; it must be int",
    ),
    "no layers": (put("llama.block_count", 0), r"llama\.block_count is 0; it must be 1 to 1048576"),
    "too many layers": (put("llama.block_count", 2**31), r"llama\.block_count is 2147483648; it must be 1 to"),
    "negative base": (put("llama.rope.freq_base", -1.0), r"llama\.rope\.freq_base is -1\.0; it must be positive"),
    "base NaN": (put("llama.rope.freq_base", float("nan")), r"llama\.rope\.freq_base is nan; it must be positive"),
    "zero epsilon": (
        put("llama.attention.layer_norm_rms_epsilon", 0.0),
        r"llama\.attention\.layer_norm_rms_epsilon is 0\.0; it must be positive",
    ),
    "heads": (put("llama.attention.head_count_kv", 4), r"6 heads are no multiple of 4 KV heads\."),
    "head width": (
        lambda metadata, tensors: metadata.update(
            {f"llama.{key}": 40 for key in ("attention.key_length", "attention.value_length", "rope.dimension_count")}
        ),
        r"the head dimension 40 is no multiple of 16",
    ),
    "width": (put("llama.embedding_length", 168), r"the width 168 is no multiple of 32"),
    "feed-forward": (put("llama.feed_forward_length", 100), r"the feed-forward width 100 is no multiple of 32"),
    "too wide rope": (put("llama.rope.dimension_count", 64), r"rotary positions turn 64 of a head's 48 numbers"),
    "odd rope": (put("llama.rope.dimension_count", 33), r"rotary positions turn 33 of a head's 48 numbers"),
    "values": (put("llama.attention.value_length", 64), r"values have another head dimension than keys"),
    "no embedding": (without_tensor("token_embd.weight"), r"the tensor 'token_embd\.weight' \[V, D\] is missing"),
    "missing": (
        without_tensor("blk.1.attn_k.weight", "output_norm.weight"),
        r"2 tensors are missing: blk\.1\.attn_k\.weight; output_norm\.weight\. .*fetch it again",
    ),
    "a layer too few": (put("llama.block_count", 3), r"9 tensors are missing: blk\.2\..*; and 4 more\."),
    "unused": (
        put_tensor("rope_factors_long.weight", np.ones(24, np.float32), "F32"),
        r"1 tensors are not used by this family: rope_factors_long\.weight\.",
    ),
    "shape of the divisors": (
        put_tensor("rope_freqs.weight", np.ones(23, np.float32), "F32"),
        r"'rope_freqs\.weight' is \[23\] F32; it must be \[24\] F32",
    ),
    "type of the divisors": (
        put_tensor("rope_freqs.weight", np.ones(24, np.float16), "F16"),
        r"'rope_freqs\.weight' is \[24\] F16; it must be \[24\] F32",
    ),
    "zero among the divisors": (
        put_tensor("rope_freqs.weight", np.zeros(24, np.float32), "F32"),
        r"divisors and parameters of rotary positions must be positive",
    ),
    "bias": (put_tensor("blk.0.attn_q.bias", ONES, "F32"), r"not used by this family: blk\.0\.attn_q\.bias\."),
    "a layer too many": (put("llama.block_count", 1), r"9 tensors are not used by this family: blk\.1\."),
    "shape of a matrix": (
        put_tensor("blk.0.attn_k.weight", blocks(80, 160), "Q4_1"),
        r"1 tensors are of the wrong shape: blk\.0\.attn_k\.weight is \[80, 160\], not \[96, 160\]",
    ),
    "a transpose": (
        put_tensor("blk.1.ffn_down.weight", blocks(224, 160), "Q4_1"),
        r"blk\.1\.ffn_down\.weight is \[224, 160\], not \[160, 224\]",
    ),
    "head of another vocabulary": (
        put_tensor("output.weight", blocks(200, 160), "Q4_1"),
        r"output\.weight is \[200, 160\], not \[211, 160\]",
    ),
    "shape of a norm": (
        put_tensor("output_norm.weight", np.ones(159, np.float32), "F32"),
        r"output_norm\.weight is \[159\], not \[160\]",
    ),
    "block type of a matrix": (
        put_tensor("blk.0.attn_v.weight", np.ones((96, 160), np.int8), "I8"),
        r"'blk\.0\.attn_v\.weight' has the block type I8; there are kernels for "
        r"Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, F32, F16, BF16\. Use a file",
    ),
    "block type of a norm": (
        put_tensor("blk.0.ffn_norm.weight", blocks(1, 160, "Q8_0").reshape(-1), "Q8_0"),
        r"the vector 'blk\.0\.ffn_norm\.weight' has the block type Q8_0; it must be F32, F16 or BF16",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path, case: str) -> None:
    spoil, message = REFUSED[case]
    with pytest.raises(ModelFileError, match=message) as error:
        load_spoiled(tmp_path, spoil)
    assert "spoiled.gguf: " in str(error.value)


UNLIKE: dict[str, Any] = {  # values with which metadata of UNSUPPORTED changes the result
    **dict.fromkeys(UNSUPPORTED, 2.5),
    "expert_count": 8,
    "attention.causal": False,
    "attention.shared_kv_layers": 1,
    "use_parallel_residual": True,
    "pooling_type": 3,
    "rope.dimension_sections": [8, 8, 8, 0],
}


@pytest.mark.parametrize("key", UNSUPPORTED)
def test_metadata_that_changes_the_result_is_refused_or_harmless(key: str) -> None:
    meaning, harmless = UNSUPPORTED[key]
    with pytest.raises(ModelFileError, match=rf"llama\.{key} is .*, {meaning}, which Cutaway does not compute"):
        config_with({key: UNLIKE[key]})
    for value in harmless:
        assert config_with({key: value}) == config_with({})


ODD = (np.array([1.0, 2.0]), np.array([], np.int64), (1,), "", "abc", math.nan, math.inf, -1.0, -1, 10**400)
TYPES: dict[str, dict[str, Any]] = {
    "none": {},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "llama3": {"factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"factor": 2.0},
}


@pytest.mark.parametrize("scaling", TYPES)
@pytest.mark.parametrize("key", [*SCALING_KEYS, *SCALING_NOT_READ, "type"])
def test_an_odd_value_of_scaled_positions_is_an_error_or_without_effect(scaling: str, key: str) -> None:
    """Never another exception, and never angles that are no numbers."""
    sound = {f"rope.scaling.{name}": value for name, value in (TYPES[scaling] | {"type": scaling}).items()}
    ignored = {"none": set(SCALING_KEYS) - {"factor"}, "linear": {"original_context_length"}}.get(scaling, set())
    for value in ODD:
        odd = {**sound, f"rope.scaling.{key}": value}
        if key == "type" and isinstance(value, str) and not value:
            continue  # as if it were not there
        if key in ignored:
            with contextlib.suppress(ModelFileError):
                assert config_with(odd).ropes == config_with(sound).ropes
        else:
            with pytest.raises(ModelFileError, match=r"^odd\.gguf: "):
                config_with(odd)


def test_gemma2_attends_a_window_where_its_file_does_not_say_how_long() -> None:
    """The first files of it had no such key; llama.cpp takes 4,096, as all these models have."""
    config = config_with({}, "gemma2")
    assert config.windows[:2] == (4096, 0)


def test_gemma3_needs_a_window() -> None:
    """Without one, five of six layers would turn by the other base, and attend too much."""
    with pytest.raises(ModelFileError, match=r"'gemma3\.attention\.sliding_window' is missing"):
        config_with({}, "gemma3")
    assert config_with({"attention.sliding_window": 512}, "gemma3").windows[:2] == (512, 512)


def config_with(changes: dict[str, Any], architecture: str = "llama") -> ModelConfig:
    """The config of a file with this metadata besides."""
    metadata = tiny_metadata(SIZES, architecture) | {f"{architecture}.{key}": each for key, each in changes.items()}
    embedding = Tensor(
        "token_embd.weight", (SIZES.vocab_size, SIZES.width), BY_NAME["F32"], 0, np.zeros((0, 0), np.uint8)
    )
    return read_config(ModelSource(Path("odd.gguf"), "GGUF", metadata, {embedding.name: embedding}))


QWEN2_REFUSED: dict[str, tuple[Callable[[Metadata, Tensors], Any], str]] = {
    "window": (put("qwen2.attention.sliding_window", 512), r"attention\.sliding_window is 512, a sliding window"),
    "divisors": (
        put_tensor("rope_freqs.weight", np.ones(24, np.float32), "F32"),
        r"1 tensors are not used by this family: rope_freqs\.weight\.",
    ),
    "missing biases": (
        without_tensor("blk.0.attn_q.bias", "blk.1.attn_k.bias"),
        r"2 tensors are missing: blk\.0\.attn_q\.bias; blk\.1\.attn_k\.bias\.",
    ),
    "a bias that the family lacks": (
        put_tensor("blk.1.attn_output.bias", ONES, "F32"),
        r"1 tensors are not used by this family: blk\.1\.attn_output\.bias\.",
    ),
    "shape of a bias": (
        put_tensor("blk.1.attn_v.bias", np.ones(95, np.float32), "F32"),
        r"of the wrong shape: blk\.1\.attn_v\.bias is \[95\], not \[96\]",
    ),
    "block type of a bias": (
        put_tensor("blk.0.attn_k.bias", blocks(1, 96, "Q8_0").reshape(-1), "Q8_0"),
        r"the vector 'blk\.0\.attn_k\.bias' has the block type Q8_0; it must be F32, F16 or BF16",
    ),
}


@pytest.mark.parametrize("loader", [None, load_reference], ids=["closed", "reference"])
@pytest.mark.parametrize("case", QWEN2_REFUSED)
def test_a_file_of_qwen2_that_cannot_be_run_is_refused(tmp_path: Path, case: str, loader: Any) -> None:
    spoil, message = QWEN2_REFUSED[case]
    with pytest.raises(ModelFileError, match=message):
        load_spoiled(tmp_path, spoil, loader, architecture="qwen2")


@pytest.mark.parametrize("case", ["missing", "unused", "shape of a matrix", "scaled rope", "heads"])
def test_the_reference_refuses_the_same_files(tmp_path: Path, case: str) -> None:
    spoil, message = REFUSED[case]
    with pytest.raises(ModelFileError, match=message):
        load_spoiled(tmp_path, spoil, load_reference)


ABSENT: dict[str, Any] = {
    "rope.scaling.type": "none",
    "rope.scaling.factor": 1.0,
    "rope.scaling.finetuned": False,
    "rope.scale_linear": 1.0,
    "expert_count": 0,
    "attention.sliding_window": 0,
}


@pytest.mark.parametrize("key", ABSENT)
def test_a_variant_that_is_declared_absent_is_accepted(tmp_path: Path, key: str) -> None:
    config = load_spoiled(tmp_path, put(f"llama.{key}", ABSENT[key])).config
    assert config.ropes == (Rope(10_000.0, SIZES.head_dim),)
    assert config.windows == (0, 0)


def test_a_factor_without_a_type_is_linear(tmp_path: Path) -> None:
    for key in ("rope.scaling.factor", "rope.scale_linear"):
        config = load_spoiled(tmp_path, put(f"llama.{key}", 4.0)).config
        assert config.ropes == (Rope(10_000.0, SIZES.head_dim, "linear", {"factor": 4.0}),)


def test_which_layers_attend_a_window(tmp_path: Path) -> None:
    """All of them, or all but each n-th, or as a list says."""
    pattern = "llama.attention.sliding_window_pattern"
    for extra, windows in (({}, (9, 9)), ({pattern: 2}, (9, 0)), ({pattern: [False, True]}, (0, 9))):
        change = {"llama.attention.sliding_window": 9, **extra}
        config = load_spoiled(tmp_path, lambda metadata, tensors, change=change: metadata.update(change)).config
        assert config.windows == windows


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_head_of_its_own_or_tied(tmp_path: Path, architecture: str, tied: bool) -> None:
    """Without ``output.weight`` the embedding is the head; with it, the file's own is, also where the two are equal."""
    sizes = SIZES._replace(width=192, head_dim=32, num_kv_heads=6)
    tensors = tiny_tensors(sizes, tied=True, architecture=architecture)
    if not tied:
        array, type_name = tensors["token_embd.weight"]
        tensors["output.weight"] = (np.ascontiguousarray(array[::-1]), type_name)
    path = write_gguf(tmp_path / "tiny.gguf", tiny_metadata(sizes, architecture), tensors)
    with open_gguf(path) as gguf:
        loaded, (_, exact) = load_model(gguf, threads=1), load_reference(gguf)
    embedding, head = (int(weights[0]["tiles"]) for weights in (loaded.record.embedding, loaded.record.head))
    assert (embedding == head) == tied
    rows = exact.head[0].matrix
    assert np.array_equal(rows if tied else rows[::-1], exact.embedding[0].matrix)


def test_what_the_file_may_leave_out(tmp_path: Path) -> None:
    """KV heads are then the heads; a head's width is D / H."""
    sizes = TinySizes(width=96, num_heads=6, num_kv_heads=6, head_dim=16)
    metadata = tiny_metadata(sizes)
    for key in ("head_count_kv", "key_length", "value_length"):
        del metadata[f"llama.attention.{key}"]
    del metadata["llama.rope.dimension_count"]
    with open_gguf(write_gguf(tmp_path / "tiny.gguf", metadata, tiny_tensors(sizes))) as gguf:
        config = load_model(gguf, threads=2).config
    assert (config.num_kv_heads, config.head_dim) == (6, 16)


# Small models that run


MODELS: dict[str, dict[str, Any]] = {
    "Q4_0": {"formats": ("Q4_0",)},
    "Q4_1": {"formats": ("Q4_1",)},
    "Q8_0": {"formats": ("Q8_0",)},
    "mixed, untied, F16 norms": {"formats": ("Q8_0", "Q4_1", "Q4_0"), "tied": False, "norm_type": "F16"},
    "2 to 4 bits": {"formats": ("Q2_K", "IQ4_NL", "Q3_K", "IQ4_XS")},
    "not quantised": {"formats": ("F16", "BF16", "F32")},
    "qwen2": {"formats": ("Q5_0", "Q6_K", "Q4_K", "Q8_0"), "architecture": "qwen2"},
}
TINY_SIZES = SIZES._replace(width=256, ffn_width=256 * 3)  # rows that K formats fit into


@pytest.fixture(scope="module", params=MODELS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadedModel, Any]:
    """A model, and its dequantised twin."""
    options = MODELS[request.param]
    sizes = TINY_SIZES if any(name.endswith("_K") for name in options["formats"]) else SIZES
    path = write_tiny_llama(tmp_path_factory.mktemp("tiny") / "tiny.gguf", sizes, **options)
    with open_gguf(path) as gguf:
        return load_model(gguf, threads=2), load_reference(gguf)


def test_a_tiny_model_is_near_its_reference(tiny: tuple[LoadedModel, Any]) -> None:
    """int8 activations cost little; a wrong format, layout or head would cost everything."""
    loaded, (config, record) = tiny
    step = [Part(0, 0, len(IDS))]
    ours = run_schedule(loaded, [IDS], [step], threads=2)
    exact = run_reference(config, record, [IDS], [step])
    p, q = (log_softmax(np.stack([logits[0, t] for t in range(len(IDS))])) for logits in (exact, ours))
    divergence = (np.exp(p) * (p - q)).sum(axis=1)
    uniform = (np.exp(p) * (p + np.log(config.vocab_size))).sum(axis=1)
    assert divergence.mean() < 2e-2 * uniform.mean()
    assert uniform.mean() > 1e-3, "the model says nothing"


def test_a_tiny_model_open_is_closed(tiny: tuple[LoadedModel, Any]) -> None:
    loaded, _ = tiny
    steps = [[Part(0, 0, 81)], [Part(0, 81, 90)]]
    closed = run_schedule(loaded, [IDS], steps, threads=3)
    opened = run_schedule(loaded, [IDS], steps, forward=rebind({"tap": lambda team, name, layer, array: None}))
    assert set(closed) == set(opened)
    assert sum(differing(closed[place], opened[place]) for place in closed) == 0


def test_qwen2_without_biases_is_llama_with_the_rows_of_its_pairs_side_by_side(tmp_path: Path) -> None:
    """A pair's rows are half a head apart in qwen2's files, neighbours in llama's; else the two compute the same."""
    tensors = tiny_tensors(SIZES, architecture="qwen2")
    llama = {name: tensor for name, tensor in tensors.items() if not name.endswith(".bias")}
    for name, (array, type_name) in tensors.items():
        if name.endswith(".bias"):
            tensors[name] = (np.zeros_like(array), type_name)
        elif name.endswith(("attn_q.weight", "attn_k.weight")):
            halves = array.reshape(-1, 2, SIZES.head_dim // 2, array.shape[1])
            llama[name] = (np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape), type_name)
    logits = []
    for architecture, each in (("qwen2", tensors), ("llama", llama)):
        path = write_gguf(tmp_path / f"{architecture}.gguf", tiny_metadata(SIZES, architecture), each)
        with open_gguf(path) as gguf:
            rows = run_reference(*load_reference(gguf), [IDS], [[Part(0, 0, len(IDS))]])
        logits.append(np.stack([rows[0, t] for t in range(len(IDS))]))
    np.testing.assert_allclose(logits[0], logits[1], rtol=1e-9, atol=1e-9)


def test_threads_load_the_same_tiles(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny_metadata(SIZES), tiny_tensors(SIZES))
    with open_gguf(path) as gguf:
        one, many = load_model(gguf, threads=1), load_model(gguf, threads=5)
    assert one.arena.used == many.arena.used
    logits = [run_schedule(model, [IDS], [[Part(0, 0, 9)]]) for model in (one, many)]
    assert sum(differing(logits[0][place], logits[1][place]) for place in logits[0]) == 0


def test_one_compilation_serves_every_model(smollm2: LoadedModel, tmp_path: Path) -> None:
    """Formats, heads, widths are data: the forward's arguments have the same types as those compiled ahead.

    A vocabulary that is no multiple of 16 has strided logits, another type; not here.
    """
    sizes = TinySizes(vocab_size=16 * 13)
    options: dict[str, Any] = {"formats": ("Q8_0", "Q5_0", "Q4_1"), "tied": False, "norm_type": "F16"}
    with open_gguf(write_tiny_llama(tmp_path / "tiny.gguf", sizes, architecture="qwen2", **options)) as gguf:
        tiny = load_model(gguf, threads=2)
    seen = []

    def look(*arguments: Any) -> None:
        seen.append(tuple(make_argument(argument).type for argument in arguments))

    for loaded in (smollm2, tiny):
        run_schedule(loaded, [IDS[:3]], [[Part(0, 0, 3)]], forward=look)
    assert seen[0] == seen[1]
    assert seen[0] == tuple(make_argument(argument).type for argument in step_arguments())
