"""The figures of the house: what a stranger stumbles over, counted. `make figures` prints them."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "cqels"
FUNCTION, FILE, PROSE = 60, 500, 160
"""Lines of a function, lines of a file and characters of a line of Markdown beyond which they are counted."""


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def same_names() -> list[str]:
    """Names that several modules have; a package's own file has none."""
    counts = Counter(path.stem for path in modules() if path.stem != "__init__")
    return [f"{name} ×{count}" for name, count in sorted(counts.items()) if count > 1]


def largest_folder() -> str:
    folder, count = Counter(path.parent for path in modules()).most_common(1)[0]
    return f"{folder.relative_to(SOURCE)}: {count} modules"


def without_docstring() -> list[str]:
    return [_name(path) for path in modules() if ast.get_docstring(ast.parse(path.read_text())) is None]


def functions() -> Iterator[tuple[str, int]]:
    """Every function with its lines."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield f"{_name(path)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def long_files() -> list[tuple[str, int]]:
    return [(_name(path), size) for path in modules() if (size := len(path.read_text().splitlines())) > FILE]


def long_prose() -> list[str]:
    """Lines of README and docs that do not fit a screen; rows of tables cannot be broken."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages
        if page.exists()
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if len(line) > PROSE and not line.startswith("|")
    ]


def _name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def _line(what: str, found: Iterable[object], note: str = "") -> str:
    items = [str(each) for each in found]
    return "\n".join([f"{what}: {len(items)}{note}", *(f"  {each}" for each in items)])


def report() -> str:
    sizes = sorted(functions(), key=lambda each: -each[1])
    long = [f"{size}  {name}" for name, size in sizes if size > FUNCTION]
    files = [f"{size}  {name}" for name, size in sorted(long_files(), key=lambda each: -each[1])]
    parts = (
        f"modules: {len(modules())}",
        _line("module names used more than once", same_names()),
        f"largest folder: {largest_folder()}",
        _line("modules without a docstring", without_docstring()),
        _line(f"functions over {FUNCTION} lines", long, f" of {len(sizes)}"),
        _line(f"files over {FILE} lines", files),
        _line(f"prose lines over {PROSE} characters", long_prose()),
    )
    return "\n".join(parts)


if __name__ == "__main__":
    print(report())  # noqa: T201
