"""Places in TOML: every word and value is found where it is, however the text is laid out."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cqels.model.toml_places import Path, nearest, toml_places

TEXT = '''# a comment with [brackets] and = signs
name = "x # no comment"
a.b."c.d" = 'raw \\'
[pipeline]
state = """several
lines = "quoted" [x]
"""   # behind it
trigger = 2026-01-31T12:00:00Z
list = [ 1, # one = 1
  [ "]", '}' ], { deep = [true,], "q=" = 1.5 } ]

[[streams]]
iri = ":a"
[streams.more]
x = 1
[[ streams ]]
iri=":b"
[other."very deep".table]
y = ''
'''


def value_at(table: Any, path: Path) -> Any:
    for each in path:
        table = table[each]
    return table


def paths(value: Any, path: Path = ()) -> set[Path]:
    """Those of all words and entries."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {found for word, inner in entries for found in {(*path, word), *paths(inner, (*path, word))}}


def check(text: str) -> None:
    table, places = tomllib.loads(text), toml_places(text)
    assert {*places} == paths(table)
    for path, place in places.items():
        value = value_at(table, path)
        written = text[place.value.start : place.value.end]
        if not isinstance(value, dict | list) or written[0] == "{":
            assert tomllib.loads(f"v = {written}")["v"] == value, path
        if isinstance(path[-1], str):
            word = text[place.word.start : place.word.end]
            assert word == path[-1] or tomllib.loads(f"v = {word}")["v"] == path[-1]


def test_a_text_of_all_kinds() -> None:
    check(TEXT)
    places = toml_places(TEXT)
    second = places["streams", 1, "iri"].value
    assert TEXT[second.start : second.end] == '":b"'
    assert TEXT[: second.start].count("\n") == 16


def test_what_is_not_there_is_pointed_at_by_what_it_would_be_in() -> None:
    places = toml_places(TEXT)
    assert nearest(places, ("streams", 1, "from")) == places["streams", 1]
    assert nearest(places, ("nothing", "here")) is None


words = st.text(st.sampled_from("ab-_1.\" #[=]{}'é"), min_size=1, max_size=5)
values = st.recursive(
    st.one_of(st.integers(-9, 9), st.booleans(), st.text(st.sampled_from("ab\\\"'#[]{}=,\n."), max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(words, inner, max_size=3)),
    max_leaves=8,
)


def written(value: Any, gap: str) -> str:
    """As TOML, with blanks between all."""
    match value:
        case dict():
            inside = ", ".join(
                f"{json.dumps(word, ensure_ascii=False)} = {written(each, '')}" for word, each in value.items()
            )
            return "{ " + inside + " }"
        case list():
            return "[" + ",".join(gap + written(each, gap) + gap for each in value) + gap + "]"
        case _:
            return json.dumps(value)


@given(
    st.dictionaries(words, values, max_size=4),
    st.dictionaries(words, values, max_size=3),
    st.sampled_from(["", " ", "\n # x\n"]),
)
def test_any_table(first: dict[str, Any], second: dict[str, Any], gap: str) -> None:
    text = "".join(
        f"{json.dumps(word, ensure_ascii=False)} = {written(each, gap)}  # x = 1\n" for word, each in first.items()
    )
    text += "[[last-one]] # [x]\n" + "".join(
        f"{json.dumps(word, ensure_ascii=False)}={written(each, gap)}\n" for word, each in second.items()
    )
    check(text)
