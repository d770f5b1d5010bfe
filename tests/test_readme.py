"""What README.md says is true: its commands, its transcript and its map. Its code and its links: ``test_docs``."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer

from cutaway.cli.main import app
from support.markdown import block_behind

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CLI = [sys.executable, "-c", "from cutaway.cli.main import main; main()"]


def block(marker: str) -> str:
    """The code block behind an HTML comment."""
    return block_behind(README, marker)


def test_make_runs_the_same_commands() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in ("run", "test"):
        recipe = re.search(rf"^{name}:\n\t(.*)$", makefile, re.MULTILINE)
        assert recipe
        assert recipe[1] == block(f"command: {name}").strip()


def test_the_transcript_is_what_the_command_answers(smollm2_path: Path) -> None:
    """The answer is the same on every machine; only the speeds differ."""
    first, *said = block("transcript").strip().splitlines()
    command = re.fullmatch(r'\$ \.venv/bin/cutaway run smollm2 "(.*)" --seed (\d+)', first)
    assert command
    arguments = ["run", "smollm2", command[1], "--seed", command[2]]
    result = subprocess.run([*CLI, *arguments], capture_output=True, text=True, check=True, encoding="utf-8")
    assert result.stdout.rstrip("\n") == "\n".join(said[:-1])

    def without_speeds(text: str) -> str:
        return re.sub(r"[\d.]+ s, \d+ tok/s|at \d+ tok/s", "…", text)

    assert without_speeds(result.stderr.strip().splitlines()[-1]) == without_speeds(said[-1])


def test_every_command_named_is_there() -> None:
    """And no other; and the options beside each. The parser is asked: printed help has colours and widths."""
    commands: Any = typer.main.get_command(app)
    table = README[README.index("| command |") : README.index("MODEL is")]
    assert set(re.findall(r"`(?:cutaway )?([a-z][a-z-]*)(?: [^`]*)?`", table)) == set(commands.commands)
    named = 0
    for row in table.splitlines():
        of_row = {
            name
            for command in re.findall(r"`(?:cutaway )?([a-z][a-z-]*)[ `]", row)
            for parameter in commands.commands[command].params
            for name in parameter.opts
        }
        options = set(re.findall(r"--[a-z][a-z-]*", row))
        assert options <= of_row
        named += len(options)
    assert named > 5


def test_the_map_names_every_folder_in_order() -> None:
    table = README[README.index("## The map") : README.index("## Files")]
    rows = re.findall(r"^\| \[(\w+)\]\(src/cutaway/(\w+)\)", table, re.MULTILINE)
    assert all(name == folder for name, folder in rows)
    assert {name for name, _ in rows} == {
        path.name for path in (ROOT / "src" / "cutaway").iterdir() if (path / "__init__.py").is_file()
    }
    order = re.findall(r"^\| `(\w+)/` \|", (ROOT / "docs" / "design.md").read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == [name for name in order if name in dict(rows)]
