"""What the documentation says is true: its code runs, its commands parse or run, its links lead somewhere, what it
shows is what comes out, and the pages that are made from the sources are current.

In a page, a ``python`` block is run, all of a page in one namespace, as in a notebook; the comment ``not run: …`` above
it excludes it and says why. A ``sh`` block's commands are run where they take a second or two, else parsed. A block
under the comment ``prints`` is exactly what the block before it prints. ``py`` and ``text`` blocks are neither.
"""

import ast
import contextlib
import importlib.util
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cutaway import LLM
from cutaway.cli.main import app
from cutaway.model.shapes import TAPS
from cutaway.sampling.choose import STEPS
from support.markdown import Block, anchors, blocks, links

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(DOCS.glob("*.md"))
PROGRAM = re.compile(r"(?:\.venv/bin/)?cutaway")

PARSED_ONLY = {
    "bench": "it measures for twenty seconds",
    "doctor": "it measures for a second, and prints what no two machines have",
    "chat": "it talks with a person",
    "serve": "it serves until it is told to end",
    "rm": "it would remove the model that the other tests read",
    "ladder": "it measures for minutes",
    "parity": "float64 takes its time",
    "train-tokenizer": "it wants a corpus, and leaves a file behind",
    "trace": "it leaves a folder behind",
    "walk": "it measures, unless --no-times is given",
}
"""Commands that are not run, each with the reason."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


pages = pytest.mark.parametrize("page", PAGES, ids=name_of)


def pages_with(language: str) -> Any:
    """The pages that have a block of this language."""
    found = [page for page in PAGES if any(block.language == language for block in blocks(page.read_text("utf-8")))]
    return pytest.mark.parametrize("page", found, ids=name_of)


def printed_after(page: Path) -> Iterator[tuple[Block, str | None]]:
    """Each block with what it prints, where the page says so."""
    all_blocks = blocks(page.read_text("utf-8"))
    for block, following in zip(all_blocks, [*all_blocks[1:], None], strict=True):
        yield block, following.text if following is not None and following.marker == "prints" else None


@pages_with("python")
def test_python_blocks_run(page: Path, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block, expected in printed_after(page):
        if block.language != "python" or (block.marker or "").startswith("not run: "):
            continue
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile("\n" * block.line + block.text, str(page), "exec"), namespace)
        if expected is not None:
            assert output.getvalue() == expected, f"{name_of(page)}:{block.line}"
    for value in namespace.values():
        if isinstance(value, LLM):
            value.close()


def commands(block: Block) -> list[list[str]]:
    """The calls of ``cutaway`` in a block of shell, as arguments; a call within a longer line begins with "…"."""
    found = []
    for line in block.text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        calls: list[list[str]] = [[]]
        for word in words:
            if set(word) <= set("();<>|&"):
                calls.append([])
            else:
                calls[-1].append(word)
        alone = len(calls) == 1
        found += [call[1:] if alone else ["…", *call[1:]] for call in calls if call and PROGRAM.fullmatch(call[0])]
    return found


def test_calls_are_found_in_shell() -> None:
    text = (
        "cutaway ls  # the models\n# cutaway rm x\npip install x\n"
        "echo 'a | b' | .venv/bin/cutaway run smollm2 - > out\ncutaway run smollm2 \\\n    'two words'\n"
    )
    block = Block("sh", text, None, 1)
    assert commands(block) == [["ls"], ["…", "run", "smollm2", "-"], ["run", "smollm2", "two words"]]


def is_run(arguments: list[str]) -> bool:
    """Whether a call takes a second or two, and leaves nothing behind."""
    return arguments[0] not in PARSED_ONLY or "--no-times" in arguments


def parse(arguments: list[str]) -> None:
    """Let the command line's own parser judge, and nothing run."""
    group: Any = typer.main.get_command(app)
    if arguments[0].startswith("-"):
        group.make_context("cutaway", list(arguments), resilient_parsing=True)
        return
    assert arguments[0] in group.commands, arguments
    group.commands[arguments[0]].make_context(arguments[0], arguments[1:])


@pages_with("sh")
def test_commands_run_or_parse(page: Path, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for block, expected in printed_after(page):
        if block.language != "sh":
            continue
        output = ""
        for arguments in commands(block):
            within_a_line = arguments[0] == "…"
            arguments = arguments[within_a_line:]
            parse(arguments)
            if not within_a_line and is_run(arguments) and page.parent == DOCS:
                result = CliRunner().invoke(app, arguments)
                assert result.exception is None or result.exit_code == 0, (arguments, result.exception, result.output)
                output += result.stdout
        if expected is not None:
            assert output.rstrip() == expected.rstrip(), f"{name_of(page)}:{block.line}"


def test_commands_that_only_parse_exist() -> None:
    group: Any = typer.main.get_command(app)
    assert set(PARSED_ONLY) <= set(group.commands)


PAGE = """\
# A page: of `code`, and more!

<!-- prints -->
```text
[not](a-link)
# not a heading
```

[one](other.md#part) and [`two`](#a-page-of-code-and-more), [three
lines](x.py)

## Same
## Same
"""


def test_pages_are_read_as_github_reads_them() -> None:
    assert blocks(PAGE) == [Block("text", "[not](a-link)\n# not a heading\n", "prints", 4)]
    assert [(link.label, link.target) for link in links(PAGE)] == [
        ("one", "other.md#part"),
        ("`two`", "#a-page-of-code-and-more"),
        ("three\nlines", "x.py"),
    ]
    assert anchors(PAGE) == {"a-page-of-code-and-more", "same", "same-1"}


def defined_names(source: Path) -> set[str]:
    """What a module defines at its top, and ``Class.member``."""
    names: set[str] = set()
    for node in ast.parse(source.read_text("utf-8")).body:
        members = [node, *node.body] if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for member in members:
            own = "" if member is node else prefix
            if isinstance(member, ast.FunctionDef | ast.ClassDef):
                names.add(own + member.name)
            elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                names.add(own + member.target.id)
            elif isinstance(member, ast.Assign):
                names |= {own + target.id for target in member.targets if isinstance(target, ast.Name)}
    return names


@pages
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings that exist; and where a link to a module is labelled with a name in code, the module defines
    it.
    """
    for link in links(page.read_text("utf-8")):
        if link.target.startswith(("https://", "mailto:")):
            continue
        target, _, fragment = link.target.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), link
        assert path.is_relative_to(ROOT.resolve()), link
        if fragment:
            assert path.suffix == ".md", link
            assert fragment in anchors(path.read_text("utf-8")), link
        label = re.fullmatch(r"`([A-Za-z_][\w.]*)`", link.label)
        if path.suffix == ".py" and label and label[1] != path.name:
            assert label[1] in defined_names(path), link


@pages
def test_pages_are_reached_from_the_index(page: Path) -> None:
    """And the index from the README."""
    index = {link.target.partition("#")[0] for link in links((DOCS / "index.md").read_text("utf-8"))}
    if page.parent == DOCS and page.name != "index.md":
        assert page.name in index
    if page.name == "README.md":
        assert "docs/index.md" in {link.target for link in links(page.read_text("utf-8"))}


def script(name: str) -> ModuleType:
    """A script of the docs folder, as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["make_api", "make_files", "make_models", "make_shapes"])
def test_made_pages_are_current(name: str, smollm2_path: Path) -> None:
    made: Any = script(name)
    assert made.PAGE.read_text("utf-8") == made.page(), f"run: python docs/{name}.py"


@pytest.mark.parametrize(
    ("table", "name"),
    [("FAMILIES", "nosuch"), ("TILE_FORMATS", "IQ3_S"), ("SCALINGS", "longrope"), ("HF_FAMILIES", "bert")],
)
def test_what_the_page_of_models_says_by_hand_is_checked(
    monkeypatch: pytest.MonkeyPatch, table: str, name: str
) -> None:
    """A family without words, or an example of what is refused that is run by now."""
    made: Any = script("make_models")
    values = getattr(made, table)
    monkeypatch.setattr(made, table, {**values, name: next(iter(values.values()))})
    with pytest.raises(ValueError, match=name):
        made.page()


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = page[page.index(f"\n{heading}\n") :]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[0].splitlines()[2:]]


def forward_calls() -> list[tuple[str, str]]:
    """(operation, tap) in the order in which the source of the forward has them."""
    tree = ast.parse((ROOT / "src/cutaway/model/forward.py").read_text("utf-8"))
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "forward")
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    named = [call for call in sorted(calls, key=lambda call: call.lineno) if call.func.id != "range"]  # type: ignore[attr-defined]
    pairs = zip(named[::2], named[1::2], strict=True)
    return [(operation.func.id, tap.args[1].value) for operation, tap in pairs]  # type: ignore[attr-defined]


def test_the_life_of_a_request_has_every_operation_of_the_forward_in_order() -> None:
    rows = rows_of((DOCS / "life-of-a-request.md").read_text("utf-8"), "### Operation by operation")
    told = [(re.sub(r"^\[`(\w+)`\].*", r"\1", row[1]), row[0].strip("`"), row[2].strip("`")) for row in rows]
    expected = [(operation, tap, f"[{', '.join(TAPS[tap])}]") for operation, tap in forward_calls()]
    assert told == expected


def test_sampling_tells_the_declared_order() -> None:
    page = "\n" + (DOCS / "sampling.md").read_text("utf-8")
    assert tuple(row[0].strip("`") for row in rows_of(page, "# Sampling")) == STEPS
    told = re.findall(
        r"^\*\*([\w -]+)\.\*\* ", page[page.index("## The steps") : page.index("## The draw")], re.MULTILINE
    )
    assert tuple(re.sub("[ -]", "_", name.lower()) for name in told) == STEPS


def test_the_map_has_every_folder_in_order() -> None:
    page = (DOCS / "map.md").read_text("utf-8")
    headings = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    there = {path.name for path in (ROOT / "src" / "cutaway").iterdir() if (path / "__init__.py").is_file()}
    order = re.findall(r"^\| `(\w+)/` \|", (DOCS / "design.md").read_text("utf-8"), re.MULTILINE)
    assert headings == [name for name in order if name in there]
    assert set(headings) == there
