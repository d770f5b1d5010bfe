"""A Hugging Face folder answers as the GGUF of the same model does: tokenizer, ends and logits together."""

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from cutaway import LLM, SamplingParams
from support.hf_folders import hf_config, hf_tensors, write_folder
from support.tiny_llama import TinySizes, tiny_tensors

SIZES = TinySizes(num_layers=1, width=64, num_heads=4, num_kv_heads=2, head_dim=16, ffn_width=64, vocab_size=272)
TEXT = "the cat sat on the mat, and the rat sat on the cat. "


def folder_of(path: Path) -> Path:
    folder = write_folder(
        path, hf_config(SIZES), hf_tensors(SIZES, tiny_tensors(SIZES, ("BF16",), tied=False)), shards=2
    )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        [TEXT], trainers.BpeTrainer(vocab_size=266, initial_alphabet=alphabet, show_progress=False)
    )
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_folder_runs(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "tiny")
    with LLM(folder, threads=1, max_model_len=64) as llm:
        whole = llm.generate("the cat", SamplingParams(temperature=0, max_tokens=8))[0].outputs[0]
    assert len(whole.token_ids) == 8
    # generation_config.json names a token of that answer as an end: the next answer ends there.
    third = whole.token_ids[2]
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": [270, {third}]}}')
    with LLM(folder, threads=1, max_model_len=64) as llm:
        cut = llm.generate("the cat", SamplingParams(temperature=0, max_tokens=8))[0].outputs[0]
    assert cut.finish_reason == "stop"
    assert len(cut.token_ids) <= 3
