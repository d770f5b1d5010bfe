"""What a long command is at: one line on a terminal, a line for each stage elsewhere."""

import io

import numpy as np
from rich.console import Console

from cutaway.audit.layer_progress import telling
from cutaway.cli.stages import stages


def test_elsewhere_a_stage_is_a_line() -> None:
    output = io.StringIO()
    with stages(Console(file=output, width=20)) as stage:
        stage.begin("explaining 200 tokens of an answer")
        stage.at("layer 3 of 30")
        stage.begin("[b]writing")
    assert output.getvalue() == "explaining 200 tokens of an answer …\n[b]writing …\n"


def test_a_terminal_has_one_line_which_goes() -> None:
    output = io.StringIO()
    with stages(Console(file=output, width=40, force_terminal=True)) as stage:
        stage.begin("reading")
        stage.at("layer 3 of 30")
        stage.begin("a stage that is longer than the terminal is wide")
    *drawn, last = output.getvalue().split("\r\x1b[K")[1:]
    assert drawn[:2] == ["reading …", "reading: layer 3 of 30"]
    assert drawn[2].endswith("…")
    assert len(drawn[2]) < 40
    assert last == ""
    assert "\n" not in output.getvalue()


def test_each_layer_is_told_once_and_the_tap_hears_all() -> None:
    heard: list[tuple[str, int]] = []
    told: list[str] = []
    tap = telling(lambda team, name, layer, array: heard.append((name, layer)), told.append, 64, 96, 96, 2)
    calls = [("embed", -1), ("qkv", 0), ("attention", 0), ("qkv", 1), ("down", 1), ("logits", -1)]
    for name, layer in calls:
        tap(None, name, layer, np.zeros(1))
    assert heard == calls
    assert told == ["tokens 65 to 96 of 96, layer 1 of 2", "tokens 65 to 96 of 96, layer 2 of 2"]
