"""Imports point from later folders of the data flow to earlier ones only."""

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "src" / "cutaway"
DESIGN = PACKAGE.parent.parent / "docs" / "design.md"


def order() -> list[str]:
    """The folders in the order of the design's table."""
    return re.findall(r"^\| `(\w+)/` \|", DESIGN.read_text(encoding="utf-8"), re.MULTILINE)


def imported_folders(path: Path) -> set[str]:
    """The folders of the package that a module imports, inside functions too."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            modules.add(node.module or "")
            modules |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "cutaway"}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in modules if name.startswith("cutaway.")}


def test_every_folder_has_a_row() -> None:
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} <= set(order())


def test_imports_point_backwards() -> None:
    rank = {name: place for place, name in enumerate(order())}
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {folder}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (own := path.relative_to(PACKAGE).parts[0]) in rank
        for folder in imported_folders(path)
        if folder in rank and rank[folder] > rank[own]
    ]
    assert wrong == []


def test_the_check_sees_imports(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        "from cutaway import hub\ndef f():\n    import cutaway.cli.main\n    from cutaway.ops.cpu import tap\n"
    )
    assert imported_folders(module) == {"hub", "cli", "ops"}
