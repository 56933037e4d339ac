"""Where files that grow are cut: behind what is complete of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cqels.ingest import declare
from cqels.pipeline.source.file_catalog import MOST_LINES, Catalog

HEAD = "id,at,value\n"
TEMPLATE = """subject = "http://ex.org/{id}"
[time]
column = "at"
[predicates]
"http://ex.org/value" = "value"
"""


def cut(folder: Path, texts: list[str]) -> list[str]:
    """What is read of a CSV file at each append."""
    (folder / "lift.toml").write_text(TEMPLATE)
    path = folder / "obs.csv"
    path.write_text("")
    catalog = Catalog(folder / "list", {0: declare("x:obs", path, template=folder / "lift.toml")})
    catalog.create(follow=True)
    found = []
    for text in texts:
        with path.open("a") as file:
            file.write(text)
        before = len(catalog.files[0])
        catalog.refresh({0: (0, 0)}, {0: "stop"})
        found.append("".join(path.read_text()[each.start : each.end] for each in catalog.files[0][before:]))
    return found


def test_a_record_is_waited_for_until_its_quotes_end(tmp_path: Path) -> None:
    first, second = '1,1,"two\n', 'lines"\n2,2,x\n3,3'
    assert cut(tmp_path, [HEAD + "0,0,a\n" + first, second]) == [HEAD + "0,0,a\n", first + second[:-3]]


@pytest.mark.parametrize("odd", ['1,1,"open\n', '1,1,"a"b\n', f"1,1,{'z' * 200_000}\n", f'1,1,"{"z" * 200_000}"\n'])
def test_what_is_no_record_holds_nothing_up_for_ever(tmp_path: Path, odd: str) -> None:
    """Not a quote that nobody closes, and not a value that is too long for a record."""
    behind = "".join(f"{number},{number},x\n" for number in range(MOST_LINES))
    texts = [HEAD + odd, behind, '9,9,"next\n', 'one"\n']
    assert "".join(cut(tmp_path, texts)[:2]) == HEAD + odd + behind
