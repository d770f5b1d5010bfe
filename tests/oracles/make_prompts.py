"""Write `tests/fixtures/prompts.json`: eleven prompts and their token ids under SmolLM2-135M-Instruct.

Comes in: the GGUF file. Goes out: one record a prompt (name, text, ids, whether special tokens are parsed
in it; for the chat also its messages). The ids are made twice, by the `tokenizers` package built from the
file's own vocabulary and by llama.cpp; the script stops unless both agree. The chat is rendered by
transformers from the file's own template.

    python -m venv peers
    CMAKE_ARGS=-DGGML_NATIVE=ON peers/bin/pip install --no-binary llama-cpp-python \\
        torch==2.13.0 transformers gguf llama-cpp-python
    peers/bin/python tests/oracles/make_prompts.py SmolLM2-135M-Instruct.Q4_1.gguf
"""

import argparse
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import llama_cpp
from gguf import GGUFReader
from oracle_model import FIXTURES, sha256_of
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CONTROL_TOKEN = 3  # tokenizer.ggml.token_type of a special token

ENGLISH = "The lighthouse keeper climbed the stairs every evening, and every time she counted the steps:"

CODE = '''def merge_sorted(left: list[int], right: list[int]) -> list[int]:
    """Merge two sorted lists into one."""
    merged, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if left[i] <= right[j]:
            merged.append(left[i])
            i += 1
        else:
            merged.append(right[j])
            j += 1
    return'''

CHINESE = "今天天气很好，我们一起去公园散步。春天来了，花开了，鸟儿在树上唱歌，孩子们在湖边放风筝。"

EMOJI = (
    "Weather report: 🌧️ in the morning, ⛅ at noon, 🌈 later! Mood: 😀😅🤔 "
    "👩\u200d👩\u200d👧\u200d👦 👍🏽 🇫🇷 — see you 🚀"
)

NUMBERS = (
    "1, 1, 2, 3, 5, 8, 13, 21, 34, 55; pi = 3.14159265; 2^10 = 1024; 1,000,000 - 1 = 999,999; ¾ of \u0663\u0662 is"
)

LONG = """\
The history of the ordinary pencil is longer and stranger than most people who hold one would guess. \
In the sixteenth century, a storm in the north of England is said to have uprooted a large tree, and \
under its roots the shepherds found a soft black mineral that marked their hands and their sheep. \
They took it for a kind of lead, and the name stayed, although there has never been any lead in a \
pencil. Sticks of the mineral were sawn by hand, wrapped in string or sheepskin, and sold to \
carpenters, painters and clerks all over Europe.

For two hundred years nobody found another deposit so pure. The mine was guarded by armed men, it \
was opened for a few weeks in a year and then flooded so that thieves could not enter, and workers \
were searched on leaving. Graphite was worth more than its weight in silver, since it was also used \
to line the moulds for cannon balls.

The shortage made people inventive. In Nuremberg, craftsmen ground the poor graphite that they had \
to powder and bound it with sulphur and resin, but the result scratched the paper and crumbled. \
During the wars at the end of the eighteenth century, France was cut off from the English mine \
altogether, and an officer named Conté was told to find a substitute. Within days he had mixed \
graphite powder with clay, pressed it into thin rods and fired them in a kiln. The more clay, the \
harder and paler the line; the less clay, the softer and blacker. That single idea is behind every \
grade printed on a pencil today, from the hard ones that draughtsmen prefer to the soft ones that \
artists use for shadows.

The wooden case has a story of its own. The first joiners cut a groove into a strip of cedar, laid \
the rod in it and glued a second strip on top. Later, machines cut several grooves side by side into \
thin slats, so that a sandwich of two slats gave six or eight pencils at once. Hexagonal pencils \
lose less wood than round ones, and they do not roll off a sloping desk, which is why"""

ONE_TOKEN = "Hello"

WHITESPACE = (
    "  two spaces\t\ttabs \n\n\n  \r\nCR LF, no-break\u00a0space, zero\u200bwidth, ideographic\u3000space, "
    "e\u0301 ﬁ Ａ \u2126≠Ω \u202eRTL\u202c \u05e2\u05d1\u05e8\u05d9\u05ea हिन्दी \x07   "
)

GERMAN_FRENCH = (
    "Der Zug nach München fährt um Viertel vor acht ab, größere Verspätungen sind möglich. "
    "« Où est passé l'élève ? » demanda la maîtresse ; le garçon, gêné, répondit qu'"
)

JSON = (
    '{"id": 42, "name": "Ada", "tags": ["x", "y"], '
    '"nested": {"ok": true, "ratio": -1.5e-3, "none": null}, "next": [{"id":'
)

CHAT = [
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris."},
    {"role": "user", "content": "And how many people live there?"},
]

PLAIN = {
    "english": ENGLISH,
    "code": CODE,
    "chinese": CHINESE,
    "emoji": EMOJI,
    "numbers": NUMBERS,
    "long": LONG,
    "one_token": ONE_TOKEN,
    "whitespace": WHITESPACE,
    "german_french": GERMAN_FRENCH,
    "json": JSON,
}


@dataclass(frozen=True)
class Vocabulary:
    """What the GGUF file says about its tokenizer."""

    tokens: list[str]
    token_types: list[int]
    merges: list[tuple[str, str]]
    chat_template: str


def read_vocabulary(path: Path) -> Vocabulary:
    fields = GGUFReader(path).fields

    def get(key: str) -> Any:
        return fields[key].contents()

    if (get("tokenizer.ggml.model"), get("tokenizer.ggml.pre")) != ("gpt2", "smollm"):
        raise SystemExit(f"{path} does not have SmolLM2's tokenizer (tokenizer.ggml.model gpt2, pre smollm)")
    return Vocabulary(
        tokens=get("tokenizer.ggml.tokens"),
        token_types=get("tokenizer.ggml.token_type"),
        merges=[(left, right) for left, right in (m.split(" ") for m in get("tokenizer.ggml.merges"))],
        chat_template=get("tokenizer.chat_template"),
    )


def build_tokenizer(vocabulary: Vocabulary, parse_special: bool) -> Tokenizer:
    """SmolLM2's tokenizer: every digit alone, then GPT-2's byte-level pre-tokenizer and BPE."""
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=vocabulary.merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    if parse_special:
        types = zip(vocabulary.tokens, vocabulary.token_types, strict=True)
        special = [token for token, token_type in types if token_type == CONTROL_TOKEN]
        tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--output", type=Path, default=FIXTURES / "prompts.json")
    arguments = parser.parse_args()

    vocabulary = read_vocabulary(arguments.gguf)
    tokenizers = {special: build_tokenizer(vocabulary, special) for special in (False, True)}
    renderer = PreTrainedTokenizerFast(tokenizer_object=tokenizers[True], chat_template=vocabulary.chat_template)
    peer = llama_cpp.Llama(str(arguments.gguf), vocab_only=True, verbose=False)

    prompts: list[dict[str, Any]] = [{"name": n, "text": t, "parse_special": False} for n, t in PLAIN.items()]
    chat = renderer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    prompts.append({"name": "chat", "text": chat, "parse_special": True, "messages": CHAT})
    for prompt in prompts:
        special = prompt["parse_special"]
        prompt["ids"] = tokenizers[special].encode(prompt["text"], add_special_tokens=False).ids
        theirs = peer.tokenize(prompt["text"].encode(), add_bos=False, special=special)
        if theirs != prompt["ids"]:
            raise SystemExit(f"{prompt['name']}: tokenizers gives {prompt['ids']}, llama.cpp {theirs}")
        if tokenizers[special].decode(prompt["ids"], skip_special_tokens=False) != prompt["text"]:
            raise SystemExit(f"{prompt['name']}: the ids do not decode to the text")
        print(f"{prompt['name']:14} {len(prompt['ids']):4} tokens")
    lengths = {prompt["name"]: len(prompt["ids"]) for prompt in prompts}
    if lengths["one_token"] != 1 or lengths["long"] < 300:
        raise SystemExit(f"one_token must have 1 token and long at least 300: {lengths}")

    fixture = {
        "gguf_sha256": sha256_of(arguments.gguf),
        "versions": {name: version(name) for name in ("tokenizers", "transformers", "gguf", "llama_cpp_python")},
        "prompts": prompts,
    }
    arguments.output.write_text(json.dumps(fixture, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
