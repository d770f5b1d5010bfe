"""Which files of a repository are the model; the names are of the kinds that published repositories have."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import InvalidRequestError, ModelFileError
from cutaway.hub.choose_files import ModelFiles, choose_files, gguf_models, selector

QWEN = [f"qwen2.5-0.5b-instruct-{each}.gguf" for each in ("fp16", "q2_k", "q4_0", "q4_k_m", "q5_k_m", "q8_0")]
BARTOWSKI = [f"Model-1B-{each}.gguf" for each in ("IQ4_XS", "Q3_K_L", "Q4_K_L", "Q4_K_M", "Q4_K_S", "Q8_0", "f16")]
DOTS = [f"model.{each}.gguf" for each in ("Q2_K", "Q4_K_S", "Q6_K")]
SPLIT = [f"Q8_0/big-Q8_0-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
REST = ["README.md", ".gitattributes", "config.json", "imatrix.gguf", "mmproj-model-f16.gguf"]
SHARDS = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
FOLDER = ["config.json", "tokenizer.json", "model.safetensors"]


def choose(names: Sequence[str], wanted: str | None = None) -> ModelFiles:
    return choose_files(dict.fromkeys(names, 1000000), wanted, "owner/repo")


@pytest.mark.parametrize(
    ("names", "wanted", "expected"),
    [
        (QWEN, None, "qwen2.5-0.5b-instruct-q4_k_m.gguf"),
        (QWEN, "Q4_K_M", "qwen2.5-0.5b-instruct-q4_k_m.gguf"),
        (QWEN, "q8_0", "qwen2.5-0.5b-instruct-q8_0.gguf"),
        (QWEN, "FP16", "qwen2.5-0.5b-instruct-fp16.gguf"),
        (QWEN, "qwen2.5-0.5b-instruct-q4_0.gguf", "qwen2.5-0.5b-instruct-q4_0.gguf"),
        (BARTOWSKI, None, "Model-1B-Q4_K_M.gguf"),
        (BARTOWSKI, "iq4_xs", "Model-1B-IQ4_XS.gguf"),
        (BARTOWSKI, "F16", "Model-1B-f16.gguf"),
        (DOTS, "Q6_K", "model.Q6_K.gguf"),
        (["model_Q4_K_M.gguf", "model_Q8_0.gguf"], "Q8_0", "model_Q8_0.gguf"),
        (["UD-Q4_K_XL.gguf", "Q4_K_M.gguf"], "UD-Q4_K_XL", "UD-Q4_K_XL.gguf"),
        (["UD-Q4_K_XL.gguf", "Q4_K_M.gguf"], "Q4_K_XL", "UD-Q4_K_XL.gguf"),
        (["only-one.gguf", *REST], None, "only-one.gguf"),
        (["ONLY.GGUF"], None, "ONLY.GGUF"),
    ],
)
def test_one_file(names: list[str], wanted: str | None, expected: str) -> None:
    assert choose([*names, *REST], wanted) == ModelFiles((expected,), expected)


def test_split_parts_belong_together() -> None:
    names = [*SPLIT[::-1], "small-Q4_0.gguf"]
    assert choose(names, "Q8_0") == ModelFiles(tuple(SPLIT), SPLIT[0])
    assert choose(names, SPLIT[1]) == ModelFiles(tuple(SPLIT), SPLIT[0])
    assert choose(SPLIT) == ModelFiles(tuple(SPLIT), SPLIT[0])


@pytest.mark.parametrize("missing", range(3))
def test_a_part_is_missing(missing: int) -> None:
    names = [name for n, name in enumerate(SPLIT) if n != missing]
    with pytest.raises(ModelFileError, match=r"of a split model all parts are needed") as caught:
        choose(names, "Q8_0")
    assert all(name in str(caught.value) for name in names)


def test_parts_of_two_counts() -> None:
    with pytest.raises(ModelFileError, match="all parts"):
        choose(["a-00001-of-00002.gguf", "a-00002-of-00003.gguf"])


@pytest.mark.parametrize(
    ("names", "wanted", "parts"),
    [
        (DOTS, None, ["3 GGUF models", "none of Q4_K_M", "owner/repo:Q2_K", *DOTS]),
        (BARTOWSKI, "Q4_K", ["7 GGUF models", "none of Q4_K", "Model-1B-Q4_K_M.gguf (0.00 GB)"]),
        (QWEN, "Q4", ["none of Q4"]),
        (QWEN, ".", ["none of ."]),
        (["a-Q8_0.gguf", "b-Q8_0.gguf"], "Q8_0", ["2 GGUF models", "2 of Q8_0", "owner/repo:a-Q8_0.gguf"]),
        ([f"m{n:02}.gguf" for n in range(30)], None, ["30 GGUF models", "m19.gguf", "and 10 more"]),
        ([*SPLIT, "x-Q4_0.gguf"], None, ["Q8_0/big-Q8_0.gguf (0.00 GB, 3 parts)"]),
    ],
)
def test_what_is_ambiguous_is_listed(names: list[str], wanted: str | None, parts: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        choose(names, wanted)
    assert caught.value.field == "model"
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("weights", [["model.safetensors"], [*SHARDS, "model.safetensors.index.json"]])
def test_a_model_in_hugging_faces_layout(weights: list[str]) -> None:
    others = ["README.md", "pytorch_model.bin", "training_args.bin", "onnx/model.onnx", "consolidated.safetensors"]
    wanted = {"config.json", "tokenizer.json", "tokenizer_config.json", *weights}
    chosen = choose([*wanted, *others])
    assert chosen.first is None
    assert set(chosen.names) == wanted


def test_a_gguf_beside_such_a_model_is_chosen_by_name() -> None:
    assert choose([*FOLDER, "model-Q4_0.gguf"]).first is None
    assert choose([*FOLDER, "model-Q4_0.gguf"], "Q4_0").first == "model-Q4_0.gguf"


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (["config.json", "pytorch_model.bin"], "pickle"),
        (["model.pt"], "pickle"),
        (["adapter_model.safetensors", "config.json"], "The safetensors lack"),
        (["model.safetensors"], "The safetensors lack"),
        (["README.md"], "It has: README.md."),
        ([], "It has: nothing."),
        (["imatrix.gguf", "mmproj-f16.gguf"], "no GGUF model"),
        ([f"f{n:02}" for n in range(50)], "and 30 more"),
    ],
)
def test_no_model(names: list[str], part: str) -> None:
    with pytest.raises(ModelFileError, match="owner/repo has no GGUF model") as caught:
        choose(names)
    assert part in str(caught.value)


@given(st.lists(st.from_regex(r"[a-zA-Z0-9._/-]{1,20}", fullmatch=True), max_size=8, unique=True))
def test_whatever_the_names_nothing_but_data_is_chosen(names: list[str]) -> None:
    try:
        chosen = choose(names)
    except (ModelFileError, InvalidRequestError):
        return
    assert set(chosen.names) <= set(names)
    assert all(
        name.lower().endswith((".gguf", ".safetensors", ".json", ".txt", ".model", ".jinja")) for name in chosen.names
    )


@pytest.mark.parametrize(
    "names", [QWEN, BARTOWSKI, DOTS, SPLIT + QWEN, ["a-Q8_0.gguf", "b-Q8_0.gguf"], ["x.gguf", "y.gguf"]]
)
def test_a_selector_selects(names: list[str]) -> None:
    models = gguf_models(names)
    for model, files in models.items():
        assert choose(names, selector(model, models)).names == files
    assert selector("model.Q6_K.gguf", gguf_models(DOTS)) == "Q6_K"
