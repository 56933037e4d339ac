"""The import graph of packages as a picture, `make graph`, and a check that none imports upwards.

Packages stand in the order of the layers of pyproject.toml, and so do the sub-packages of those that have layers of
their own.  Each arc is the imports of one by another: to the right if it goes down, as it should; to the left, in red,
the single imports that a contract lets go up.
"""

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "imports.svg"
ROW, BOX, HEAD, MARGIN = 30, 110, 40, 20
"""Pixels: between two boxes, a box's width, above the first box, around a column."""
COLUMN = 400


@dataclass(frozen=True)
class Column:
    """Packages from the top to the bottom, and how many imports lead from one to another."""

    title: str
    names: tuple[str, ...]
    imports: dict[tuple[str, str], int]

    @property
    def upwards(self) -> list[tuple[str, str]]:
        """Those that import what stands above them."""
        place = self.names.index
        return [(a, b) for a, b in self.imports if place(a) > place(b)]


def layers() -> Iterator[tuple[str, tuple[str, ...], set[tuple[str, str]]]]:
    """The contracts about layers: the package, its layers from the top, and which may import one above."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    for contract in settings["contracts"]:
        if contract["type"] == "layers":
            container = contract.get("containers", ["cqels"])[0]
            names = [name.strip().rpartition(".")[2] for layer in contract["layers"] for name in layer.split("|")]
            let_go = (each.split(" -> ") for each in contract.get("ignore_imports", ()))
            yield container, tuple(names), {(_part(container, a), _part(container, b)) for a, b in let_go}


def columns() -> list[Column]:
    graph = grimp.build_graph("cqels")
    found = []
    for container, names, _ in layers():
        imports: Counter[tuple[str, str]] = Counter()
        for module in graph.modules:
            for imported in graph.find_modules_directly_imported_by(module):
                pair = _part(container, module), _part(container, imported)
                if pair[0] != pair[1] and all(each in names for each in pair):
                    imports[pair] += 1
        found.append(Column(container, names, dict(sorted(imports.items()))))
    return found


def _part(container: str, module: str) -> str:
    """The part of a package that a module is in."""
    return module[len(container) + 1 :].split(".")[0] if module.startswith(container + ".") else ""


def picture(found: Iterable[Column]) -> str:
    drawn, x, height = [], MARGIN, 0
    for column in found:
        drawn += _drawn(column, x + (COLUMN - BOX) // 3)
        height = max(height, HEAD + ROW * len(column.names) + MARGIN)
        x += COLUMN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{x}" height="{height}" font-family="sans-serif" '
            'font-size="12">',
            f'<rect width="{x}" height="{height}" fill="white"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _drawn(column: Column, left: int) -> Iterator[str]:
    yield f'<text x="{left}" y="{HEAD - 15}" font-weight="bold">{column.title}</text>'
    middle = {name: HEAD + ROW * number + ROW // 2 for number, name in enumerate(column.names)}
    for (a, b), count in column.imports.items():
        start, end = middle[a], middle[b]
        up = start > end
        side = left if up else left + BOX
        bend = side + (-1 if up else 1) * (20 + abs(end - start) // 2)
        color = "#c0392b" if up else "#34618c"
        yield (
            f'<path d="M {side} {start} C {bend} {start}, {bend} {end}, {side} {end}" fill="none" stroke="{color}" '
            f'stroke-width="{1 + min(count, 60) / 20:.1f}" stroke-opacity="0.45">'
            f"<title>{a} imports {b}: {count}</title></path>"
        )
    for name, y in middle.items():
        yield (
            f'<rect x="{left}" y="{y - 10}" width="{BOX}" height="20" rx="4" fill="#eef3f8" stroke="#34618c"/>'
            f'<text x="{left + BOX // 2}" y="{y + 4}" text-anchor="middle">{name}</text>'
        )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])  # type: ignore[union-attr]
    options.add_argument("--out", type=Path, default=PICTURE)
    out = options.parse_args().out
    found = columns()
    out.write_text(picture(found))
    allowed = {container: pairs for container, _, pairs in layers()}
    for column in found:
        up = ", ".join(f"{a} → {b} ({column.imports[a, b]})" for a, b in column.upwards)
        sys.stdout.write(f"{column.title}: {len(column.imports)} edges, upwards: {up or 'none'}\n")
    return int(any(pair not in allowed[column.title] for column in found for pair in column.upwards))


if __name__ == "__main__":
    sys.exit(main())
