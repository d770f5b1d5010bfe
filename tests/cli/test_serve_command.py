"""``cutaway serve`` as far as its options go; what it serves is tested with the server."""

from pathlib import Path
from typing import Any

import pytest
import typer
from command import assert_refused, cutaway_here

from cutaway.cli.main import app


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (("--port", "99999"), ("port is 99999; it must be 0 to 65535",)),
        (("--grace", "-1"), ("grace is -1 s; it must be 0 to 86400",)),
        (("--max-body-size", "many"), ("max_body_size is 'many'", "such as '2GiB'")),
        (("--log-format", "xml"), ("log_format is 'xml'; it must be one of text, json",)),
        (("--api-key", "a", "--api-key", " "), ("an API key is empty",)),
        (("--host", "256.0.0.1"), ("host is '256.0.0.1', and no address of this machine",)),
        (("--port", "many"), ("Invalid value for '--port'",)),
        (("--nonsense",), ("No such option",)),
    ],
)
def test_options_that_are_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    parts: tuple[str, ...],
) -> None:
    assert_refused(cutaway_here(monkeypatch, capsys, "serve", "smollm2", *options), 2, *parts)


def test_a_variable_is_named_where_its_value_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUTAWAY_MAX_NUM_SEQS", "many")
    assert_refused(cutaway_here(monkeypatch, capsys, "serve", "smollm2"), 2, "--max-num-seqs", "CUTAWAY_MAX_NUM_SEQS")


def test_every_option_has_a_variable() -> None:
    commands: Any = typer.main.get_command(app)
    options = [each for each in commands.commands["serve"].params if each.opts[0].startswith("--")]
    named = {each.opts[0]: each.envvar for each in options if each.name != "help"}
    assert len(named) > 12
    for option, variable in named.items():
        assert variable == "CUTAWAY_" + option[2:].replace("-", "_").upper()


def test_the_defaults_are_the_settings(tmp_path: Path) -> None:
    """Said twice, since the command line shall not load the server to show its help."""
    from cutaway.server.settings import ServerSettings

    commands: Any = typer.main.get_command(app)
    defaults = {each.name: each.default for each in commands.commands["serve"].params}
    settings = ServerSettings()
    assert (defaults["host"], defaults["port"]) == (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert (defaults["grace"], defaults["log_format"]) == (settings.grace, settings.log_format)
    assert defaults["max_body_size"] == f"{settings.max_body_size >> 20}MiB"
