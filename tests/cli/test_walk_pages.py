"""``walk`` from the terminal: pages and tables that fit, JSON, the tokens of ``run``; what is refused."""

import dataclasses
import inspect
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from cutaway import LLM, SamplingParams
from cutaway.audit.limits import MachineLimits
from cutaway.audit.walk.tokens import SeenToken, find_ids
from cutaway.audit.walk.walk import TimesWanted, Walk, WalkSettings, WalkTimes
from cutaway.audit.walk.walk import walk as walk_through
from cutaway.cli.main import app
from cutaway.cli.options import with_advice
from cutaway.cli.run import run
from cutaway.cli.tables import print_whole
from cutaway.cli.walk import pages, read_layers, read_temperatures, walk
from cutaway.cli.walk_forward import MEANINGS
from cutaway.cli.walk_json import walk_dict
from cutaway.cli.walk_text import clipped, counted, every, number, percent, quoted, shown, signed, token_grid, wrapped
from cutaway.errors import CutawayError, InvalidRequestError
from cutaway.formats.gguf import open_gguf
from cutaway.model.shapes import LAYER_TAPS

FRANCE = "What is the capital of France?"
CHINESE = "今天天气怎么样"


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, threads=2, max_model_len=1024) as loaded:
        yield loaded


@pytest.fixture
def measure(smollm2_path: Path, limits: MachineLimits) -> TimesWanted:
    with open_gguf(smollm2_path) as gguf:
        return TimesWanted({name: tensor.nbytes for name, tensor in gguf.tensors.items()}, limits)


def through(llm: LLM, text: str, measure: TimesWanted | None = None, raw: bool = False, **changes: Any) -> Walk:
    settings = dataclasses.replace(WalkSettings((0.7,), 0, 0.9, 0.0, 7, 3), **changes)
    own = llm.tokenizer.encode(text)
    ids = own if raw else llm.tokenizer.encode_chat([{"role": "user", "content": text}])
    written = find_ids(ids, own)
    return walk_through(llm.runner, llm.tokenizer, ids, settings, written=written, measure=measure)


def printed(found: Walk, width: int, in_full: tuple[int, ...] = ()) -> str:
    """The pages, none of whose lines ends in blanks; from 80 columns on, all fit."""
    output = io.StringIO()
    print_whole(Console(file=output, width=width, highlight=False, emoji=False), pages(found, width, in_full))
    lines = output.getvalue().splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert width < 80 or max(map(cell_len, lines)) <= width
    return output.getvalue()


def unwrapped(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_the_pages_fit(llm: LLM, measure: TimesWanted) -> None:
    for found in (
        through(llm, FRANCE, measure),
        through(llm, CHINESE, temperatures=(0.05, 1.0, 30.0), top_p=1.0),
        through(llm, "Hi", temperatures=(0.0,), max_tokens=1),
        through(llm, "a", raw=True, temperatures=(1.0, 0.0), top_k=9, min_p=0.1),
        through(llm, "of the " * 300, raw=True, max_tokens=2),
    ):
        for width in (80, 119, 120, 200):
            text = printed(found, width, in_full=(0, 29))
            for step, title in enumerate(("Tokenize", "Embed and place", "Layers", "Sample", "Append and repeat"), 1):
                assert text.count(f"── {step} of 5 · {title} ") == 1
            assert ("── What it cost" in text) == (found.times is not None)


def test_the_pages_say_what_the_data_says(llm: LLM, measure: TimesWanted) -> None:
    found = through(llm, FRANCE, measure)
    text = printed(found, 80)
    sentences = unwrapped(text)
    choice, forward = found.new_tokens[0].choices[0], found.forward
    assert "37 pieces" in sentences
    assert "Your text is at positions 24 to 30" in sentences
    top_p = next(step for step in choice.steps if step.name == "top_p")
    assert f"Top-p 0.9 kept {top_p.kept:,} of 49,152 tokens, which together had {percent(top_p.mass)}" in sentences
    assert "Logit bias, masks, penalties, top-k and min-p did nothing here." in sentences
    assert "seed 7, position 37" in sentences
    assert choice.winner.total is not None
    assert f"The winner: {quoted(choice.winner.piece)} with {signed(choice.winner.total)}" in sentences
    assert f"looks: {percent(forward.attention.first)} at the first token" in sentences
    assert len(re.findall(r"^►", text, re.MULTILINE)) == 1
    for layer in forward.layers:
        line = next(
            line for line in text.splitlines() if re.match(rf" +{layer.layer} +{number(layer.after.norm)} ", line)
        )
        for part in (layer.attention_adds.norm, layer.ffn_adds.norm):
            assert number(part) in line.split()
        look = next(each for each in layer.attention.average.strongest if 0 < each.position < 36)
        assert f" {look.position}:{shown(look.piece, 7)} {percent(look.probability)} " in line
        assert line.rstrip().endswith(percent(layer.lens.guesses[0].probability))
    for token in found.new_tokens:
        assert f"{token.position}  {shown(token.piece)}" in text
    assert f"The text so far: {found.text!r}" in sentences
    # The first token and the token itself have their own words, and are not among the others.
    for words in ("(itself)", "(36 back)", "(37 back)", "(38 back)"):
        assert words not in sentences
    assert walk_dict(found)["times"]["decode"]["tokens"] == 1
    assert re.search(r"^attention_output_input +30 .* memory +\d", text, re.MULTILINE)


def test_each_step_counts_from_the_one_before(llm: LLM) -> None:
    found = through(llm, FRANCE, top_k=9, repetition_penalty=1.2, max_tokens=1)
    sentences = unwrapped(printed(found, 80))
    steps = {step.name: step for step in found.new_tokens[0].choices[0].steps}
    assert f"Penalties changed the logits of {steps['penalties'].touched} tokens that are in the text" in sentences
    assert "Top-k 9 kept 9 of 49,152 tokens" in sentences
    assert f"Top-p 0.9 kept {steps['top_p'].kept} of 9 tokens" in sentences
    assert "repetition penalty 1.2, seed 7" in sentences


def test_temperatures_side_by_side(llm: LLM) -> None:
    found = through(llm, FRANCE, temperatures=(0.1, 1.5), seed=3)
    text = printed(found, 80)
    assert re.search(r"^rank token +model noise +T 0\.1 +sum +T 1\.5 +sum$", text, re.MULTILINE)
    assert text.count("►") == 2
    for choice in found.new_tokens[0].choices:
        assert f"At temperature {choice.temperature:g} the winner: {quoted(choice.winner.piece)}" in unwrapped(text)
    assert "The walk goes on with temperature 0.1." in text


def test_what_cannot_be_chosen_has_no_probability(llm: LLM) -> None:
    """At temperature 0 all but the largest logit."""
    found = through(llm, FRANCE, temperatures=(1.0, 0.0), max_tokens=1)
    text = printed(found, 80)
    assert len(re.findall(r" ►100 %$", text, re.MULTILINE)) == 1
    others = len(found.new_tokens[0].choices[1].candidates) - 1
    assert len(re.findall(r"^ +\d+ .* –$", text, re.MULTILINE)) == others
    greedy = found.new_tokens[0].choices[1].winner
    assert f"{quoted(greedy.piece)}, with the largest logit, {greedy.logit:.2f}." in unwrapped(text)
    assert "for every temperature" not in text  # noise is drawn for one


def test_a_penalised_winner_is_shown_with_the_models_logit(llm: LLM) -> None:
    found = through(llm, FRANCE, temperatures=(0.0,), repetition_penalty=1.5, max_tokens=1)
    winner = found.new_tokens[0].choices[0].winner
    expected = f"with the largest logit after the penalties; before them it is {winner.logit:.2f}."
    assert expected in unwrapped(printed(found, 80))


def test_why_an_unlikely_token_is_a_candidate(llm: LLM) -> None:
    hot = printed(through(llm, FRANCE, temperatures=(30.0,), top_p=1.0, max_tokens=1), 80)
    assert "an unlikely token is among these because its noise is large" in unwrapped(hot)
    assert "can't be drawn" not in hot
    cold = printed(through(llm, FRANCE, temperatures=(0.1,), max_tokens=1), 80)
    assert "because its noise is large" not in unwrapped(cold)
    assert "A token with – can't be drawn; its noise is what it would have had." in cold


def test_a_tied_head_is_called_the_embedding(llm: LLM, smollm2_path: Path) -> None:
    found = through(llm, FRANCE, max_tokens=1)
    with open_gguf(smollm2_path) as gguf:
        assert found.tied_head == ("output.weight" not in gguf.tensors)
    clause = "the head [V, D], which is the embedding matrix itself, gives"
    assert clause in unwrapped(printed(found, 80))
    assert clause not in unwrapped(printed(dataclasses.replace(found, tied_head=False), 80))


def test_a_prompt_of_one_token(llm: LLM) -> None:
    text = printed(through(llm, "x", raw=True, max_tokens=1), 80, in_full=(4,))
    sentences = unwrapped(text)
    for wrong in ("1 pieces", "1 rows", "1 tokens", "On average over", "back at"):
        assert wrong not in sentences
    assert "The only token, ‹x›, has nothing to look at but itself." in sentences
    assert len(re.findall(r"^ +\d+ .* – +100 ", text, re.MULTILINE)) == 30 + 9


def test_the_layers_begin_with_the_embedding(llm: LLM) -> None:
    found = through(llm, FRANCE, max_tokens=1)
    forward = found.forward
    first, guess = forward.layers[0].before, forward.embedding_lens.guesses[0]
    line = rf"^embed +{number(first.norm)} +{re.escape(shown(guess.piece, 8))} {percent(guess.probability)}$"
    assert re.search(line, printed(found, 80), re.MULTILINE)
    assert f"range from {signed(first.least)} to {signed(first.greatest)} in the embedding" in unwrapped(
        printed(found, 80)
    )
    wide = printed(found, 120)
    for layer in forward.layers:
        after = layer.after
        row = [str(layer.layer), number(after.norm), signed(after.least), signed(after.greatest)]
        assert re.search("^ +" + " +".join(map(re.escape, row)) + " ", wide, re.MULTILINE)


def test_operations_are_shown_with_what_they_write(llm: LLM) -> None:
    """SmolLM2 has 9 query and 3 key/value heads of 64."""
    lines = [" ".join(line.split()) for line in printed(through(llm, FRANCE, max_tokens=1), 80).splitlines()]
    for line in (
        "rope [T, H·Dh+Hkv·Dh] [37, 768] f32 turn q, k in place",
        "kv_write [T, 2·Hkv·Dh] [37, 384] f16 k, v into the cache",
        "attention_output_input [T, H·Dh] [37, 576] int8 round, in blocks",
        "down_input [T, F] [37, 1536] int8 round, in blocks",
    ):
        assert line in lines


def test_the_catalogues_name_comes_first(llm: LLM) -> None:
    found = through(llm, "Hi", max_tokens=1)
    assert printed(found, 80).startswith(f"{found.model}, one generation")
    named = dataclasses.replace(found, name="smollm2")
    assert unwrapped(printed(named, 80)).startswith(f"smollm2 ({found.model}), one generation")


def test_a_busy_machine_is_named(llm: LLM, measure: TimesWanted) -> None:
    found = through(llm, "Hi", measure, max_tokens=1)
    assert found.times is not None
    ledger = found.times.prefill

    def with_fastest(part: float) -> str:
        slower = max(ledger.seconds, ledger.closed_median)
        times = dataclasses.replace(ledger, closed_seconds=(part * slower, slower, slower))
        return unwrapped(printed(dataclasses.replace(found, times=WalkTimes(ledger.limits, times, None)), 80))

    assert "The machine was busy: a step took 4.0 times as long as the fastest" in with_fastest(0.25)
    assert "busy" not in with_fastest(0.9)


def test_a_narrow_terminal_gets_whole_tables(llm: LLM, measure: TimesWanted) -> None:
    """Prose is wrapped, down to a width that words need; the tables are those of 80 columns, line by line."""
    found = through(llm, FRANCE, measure, temperatures=(0.7, 1.0))
    tables = [each for each in pages(found, 80, (3,)) if isinstance(each, Table)]
    output = io.StringIO()
    print_whole(Console(file=output, width=80, highlight=False, emoji=False), tables)
    rows = [line for line in output.getvalue().splitlines() if re.search(r"\d", line)]
    assert len(rows) > 100
    for width in (60, 30):
        narrow = printed(found, width, (3,)).splitlines()
        assert [line for line in narrow if line in set(rows)] == rows


def test_a_terminal_gets_whole_tables_too(llm: LLM) -> None:
    output = io.StringIO()
    console = Console(file=output, width=40, force_terminal=True, color_system=None)
    print_whole(console, pages(through(llm, FRANCE, max_tokens=1), 40, ()))
    assert re.search(r"^kv_write .* k, v into the cache *$", output.getvalue(), re.MULTILINE)
    assert console.width == 40


@pytest.mark.parametrize("width", range(12, 60))
def test_no_line_ends_within_a_token_a_number_or_a_shape(width: int) -> None:
    words = [quoted(" is"), "7.1 %", "(19 back)", "[T, Dh]", "[36, 64],", "23.0 kB", "1.56 Top/s", quoted(" "), "it's"]
    lines = wrapped(" ".join(words * 3), width)
    assert " ".join(lines) == " ".join(words * 3)
    assert all(0 < cell_len(line) <= width for line in lines)
    found = [word for line in lines for word in re.findall("|".join(map(re.escape, words)), line)]
    assert found == words * 3


def test_a_texts_own_spaces_are_kept() -> None:
    lines = wrapped("The text so far: ' a  b   ', and a long word follows here", 20)
    assert [line for line in lines if "' a  b   '" in line]
    assert wrapped("今天天气怎么样" * 3, 20) == ["今天天气怎么样今天天", "气怎么样今天天气怎么", "样"]
    assert wrapped("", 20) == []


def test_counts() -> None:
    assert [counted(n, "piece") for n in (0, 1, 1024)] == ["0 pieces", "1 piece", "1,024 pieces"]
    assert [every(n, "head") for n in (1, 9)] == ["the one head", "all 9 heads"]


def test_layers_in_full(llm: LLM) -> None:
    found = through(llm, FRANCE, max_tokens=1)
    assert "in full" not in printed(found, 80)
    text = printed(found, 80, in_full=(23,))
    assert "Layer 23 in full" in text
    assert re.search(r"^ffn_residual +\[37, 576\] +float32 ", text, re.MULTILINE)
    assert len(re.findall(r"^ +\d +[012] +[\d.<>]+ % +[\d.<>]+ % .* back\)", text, re.MULTILINE)) == 9


def test_characters_of_two_cells_keep_their_columns() -> None:
    """Each position, piece and id begin in the same cell."""
    pieces = ["今天", "天气", "怎么样", "a", " b", "é", "🦆", "<0xE4><0xBB>", "한국어입니다만너무깁니다"]
    tokens = [SeenToken(position, 151_936 + position, piece, False) for position, piece in enumerate(pieces)]
    for row in token_grid(tokens, 0, 3, 40):
        positions, texts, ids = row.plain.rstrip("\n").split("\n")
        assert max(map(cell_len, (positions, texts, ids))) <= 40
        starts = [match.start() for match in re.finditer(r"\S+", positions)]
        assert [match.start() for match in re.finditer(r"\S+", ids)] == starts
        cells = [cell_len(texts[: match.start()]) for match in re.finditer(r"\S+", texts)]
        assert cells == starts
        for position in positions.split():
            assert shown(pieces[int(position)]) in texts


def test_every_operation_has_a_meaning() -> None:
    assert set(MEANINGS) == set(LAYER_TAPS)


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100 %"),
        (0.99999, ">99.9 %"),
        (0.9994, "99.9 %"),
        (0.9946, "99.5 %"),
        (0.41, "41 %"),
        (0.0995, "10 %"),
        (0.0994, "9.9 %"),
        (0.00995, "1.0 %"),
        (0.0099, "0.99 %"),
        (0.0001, "0.01 %"),
        (0.00009, "<0.01 %"),
        (0.0, "0 %"),
    ],
)
def test_percentages(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.00"), (3.14159, "3.14"), (9.996, "10.0"), (99.94, "99.9"), (99.96, "100"), (1118.5, "1,118")],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_signs() -> None:
    assert [signed(value) for value in (1.934, -0.001, 0.0, -1.005)] == ["+1.93", "+0.00", "+0.00", "-1.00"]


def test_long_pieces_are_cut_at_an_ellipsis() -> None:
    assert clipped("abcdef", 6) == "abcdef"
    assert clipped("abcdefg", 6) == "abcde…"
    assert clipped("今天天气", 6) == "今天…"
    assert cell_len(clipped("今天天气", 4)) <= 4
    assert shown(" a b") == "␣a␣b"
    assert quoted(" a") == "‹␣a›"
    assert quoted("'") == "‹'›"


def test_the_defaults_are_those_of_run() -> None:
    ours, theirs = inspect.signature(walk).parameters, inspect.signature(run).parameters
    advised = {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"}
    for name in set(ours) - advised - {"max_tokens", "layers", "times", "as_json"}:
        assert ours[name].default == theirs[name].default, name
    # A walk shows how a choice is made, and takes no advice that would leave nothing to choose.
    assert {theirs[name].default for name in advised} == {None}
    without_advice = SamplingParams(**with_advice({}, {}))
    assert read_temperatures(ours["temperature"].default) == (without_advice.temperature,)
    for name in advised - {"temperature"}:
        assert ours[name].default == getattr(without_advice, name), name


@pytest.mark.parametrize(
    "extra", [(), ("--raw",), ("--system", "You are a pirate.", "--repetition-penalty", "1.4", "--top-k", "20")]
)
def test_json_has_the_tokens_of_run(smollm2_path: Path, extra: tuple[str, ...]) -> None:
    options = (str(smollm2_path), FRANCE, "--seed", "5", "--max-tokens", "4", "--threads", "1", "--json", *extra)
    unadvised = ("--temperature", "0.7", "--top-p", "0.9")
    walked, ran = invoke("walk", *options, "--no-times"), invoke("run", *options, *unadvised)
    assert walked.exception is None, walked.exception
    data, expected = json.loads(walked.stdout), json.loads(ran.stdout)
    assert [token["id"] for token in data["new_tokens"]] == expected["token_ids"]
    assert [token["id"] for token in data["prompt"]] == expected["prompt_token_ids"]
    assert data["text"] == expected["text"]
    assert data["settings"]["seed"] == 5
    assert data["times"] is None
    if "--raw" not in extra:
        first, end = data["written"]
        assert "".join(token["piece"] for token in data["prompt"][first:end]) == FRANCE


def test_from_the_terminal(smollm2_path: Path) -> None:
    result = invoke("walk", "smollm2", CHINESE, "--max-tokens", "2", "--layers", "3-4", "--threads", "1")
    assert result.exception is None, result.exception
    assert result.stdout.startswith("smollm2 (")
    assert "\x1b" not in result.stdout
    assert max(map(cell_len, result.stdout.splitlines())) <= 80
    assert "‹今› 24–25, ‹天› 26–27, ‹天› 28–29, ‹气› 30–32" in unwrapped(result.stdout)
    assert "Layer 4 in full" in result.stdout
    assert "One new token that attends 46 positions" in result.stdout
    seed = re.search(r"seed (\d+):", unwrapped(result.stdout))
    assert seed
    assert f"seed {seed[1]}, position 45" in unwrapped(result.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("",), "the prompt is empty"),
        (("Hi", "--temperature", "warm"), "temperature is 'warm'; it must be a number from 0 to 100"),
        (("Hi", "--temperature", "0.1,,2"), "temperature is '0.1,,2'"),
        (("Hi", "--temperature", "nan"), "temperature is nan"),
        (("Hi", "--temperature", "1,2,3,4"), "there are 4 temperatures"),
        (("Hi", "--max-tokens", "0"), "max_tokens is 0"),
        (("Hi", "--top-p", "0"), "top_p is 0"),
        (("Hi", "--layers", "30"), "layers has '30'; the model has layers 0 to 29"),
        (("\udcff",), "the prompt"),
        (("Hi", "--raw", "--system", "x"), "there are --system and --raw"),
        (("Hi", "--repetition-penalty", "0"), "repetition_penalty is 0"),
        (("the " * 2100, "--raw"), "a walk shows 2048 at most"),
        (("the " * 200, "--raw", "--context", "64"), "the context holds 64"),
    ],
)
def test_what_is_refused(smollm2_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = invoke("walk", str(smollm2_path), *arguments, "--threads", "1", "--no-times")
    assert isinstance(result.exception, CutawayError), result.exception
    assert message in str(result.exception)
    assert result.stdout == ""


def test_layers_are_read() -> None:
    assert read_layers("", 30) == []
    assert read_layers("all", 3) == [0, 1, 2]
    assert read_layers("5,3-4, 5", 30) == [3, 4, 5]
    for text in ("30", "-1", "4-3", "3-", "x", "1,,2", "²", "1" * 5000, "0-" + "1" * 5000):
        with pytest.raises(InvalidRequestError, match=r"layers has .*; the model has layers 0 to 29") as error:
            read_layers(text, 30)
        assert error.value.field == "layers"
        assert len(str(error.value)) < 300
