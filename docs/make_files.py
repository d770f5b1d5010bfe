"""Write docs/files.md, every file of the package in one sentence: ``python docs/make_files.py``.

In: the modules' docstrings. Out: the page, in the order of the data flow; a test fails when it is not current.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "files.md"
PACKAGE = HERE.parent / "src" / "cutaway"


def folders() -> Iterator[Path]:
    """The folders in the order of the design's table, each before its own folders."""
    for name in re.findall(r"^\| `(\w+)/` \|", (HERE / "design.md").read_text("utf-8"), re.MULTILINE):
        yield from sorted({path.parent for path in (PACKAGE / name).rglob("*.py")})


def first_sentence(path: Path) -> str:
    """Of the module's docstring; nothing where it has none."""
    paragraph = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n\n")[0]
    text = " ".join(paragraph.split()).replace("``", "`")
    found = re.match(r".+?[.:](?= [A-Z]|$)", text)
    sentence = found[0] if found else text
    return sentence.replace("|", "\\|").replace("<", "&lt;")


def page() -> str:
    """The whole page."""
    lines = [
        "# All files",
        "",
        "<!-- Made by docs/make_files.py from the modules' docstrings: edit those. -->",
        "",
        "Every file of [src/cutaway](../src/cutaway) in the order in which a token passes them; each is one concept. "
        "[The map](map.md) says where to begin.",
    ]
    for folder in folders():
        name = folder.relative_to(PACKAGE).as_posix()
        lines += ["", f"## {name}", "", "| file | |", "|---|---|"]
        for path in sorted(folder.glob("*.py")):
            sentence = first_sentence(path)
            if sentence:
                target = path.relative_to(HERE.parent).as_posix()
                lines.append(f"| [{path.name}](../{target}) | {sentence} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
