"""Lifting templates as TOML: their words, and what does not fit, with its place."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pyoxigraph import Literal, NamedNode

from cqels.ingest.input_files import lines_of
from cqels.ingest.record_readers import Instant, check_columns
from cqels.ingest.template_model import MAIN, NodeTemplate, ObjectTemplate, Predicates, Template
from cqels.ingest.template_times import EPOCH, ISO, TimeTemplate, zone_of
from cqels.ingest.template_values import (
    ITEM,
    PLACE,
    SURROUNDINGS,
    DerivedValue,
    ValueMap,
    is_surrounding,
    lexical,
    names_in,
)
from cqels.model.errors import CqelsError
from cqels.model.terms import RDF, RDF_TYPE, XSD
from cqels.model.time import parse_time, unit_nanoseconds

_TOP = ("subject", "delimiter", "missing", "prefixes", "time", "values", "predicates", "nodes")
_TIME = ("column", "format", "formats", "unit", "zone")
_VALUE = ("column", "text", "map", "lookup", "key", "value", "default")
_NODE = ("subject", "predicates", "needs", "required", "each", "split", "within", "columns")
_SOURCES = ("column", "iri", "text", "value", "node")
_OBJECT = (*_SOURCES, "datatype", "language", "required", "each", "split", "map", "lookup", "key", "default")
_DERIVED = ("map", "lookup", "key", "default")
"""Words of an object that make a value of its column first."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SIGN = re.compile(r"%(.)")
_SIGNS = "aAbBcdfGHIjmMpSuUVwWxXyYzZ%"
"""What `strptime` knows."""
HINT = "a template has subject, [time] with a column, and [predicates]"


class TemplateFault(Exception):
    """What does not fit in a template, and words of the file that show the place, each behind the one before it."""

    def __init__(self, message: str, *words: str, hint: str = HINT) -> None:
        super().__init__(message)
        self.message = message
        self.words = words
        self.hint = hint


class TemplateReader:
    """Reads the tables of one template; files that it names are in `folder`."""

    def __init__(self, folder: Path, prefixes: dict[str, str] | None = None) -> None:
        self._folder = folder
        self.prefixes = {"xsd": XSD, "rdf": RDF} | (prefixes or {})
        self._values: list[DerivedValue] = []

    def template(self, table: dict[str, Any], *, timed: bool) -> Template:
        known(table, _TOP, "a template")
        prefixes = _table(table, "prefixes")
        for prefix, namespace in prefixes.items():
            if not isinstance(namespace, str):
                raise TemplateFault(f"prefix '{prefix}' does not stand for a text", "prefixes", prefix)
        self.prefixes |= prefixes
        for name, value in _table(table, "values").items():
            self._values.append(self._value(name, value))
        nodes = self._nodes(table)
        time = self.time(_table(table, "time"), timed=timed)
        delimiter = table.get("delimiter", ",")
        if not isinstance(delimiter, str) or len(delimiter) != 1:
            raise TemplateFault("the delimiter is not one character", "delimiter")
        missing = _texts(table, "missing")
        shown = tuple(self.prefixes.items())
        template = Template(nodes, time, tuple(self._values), frozenset(missing), table.get("delimiter"), shown)
        _check_names(template)
        return template

    # ------------------------------------------------------------ time

    def time(self, table: dict[str, Any], *, timed: bool) -> TimeTemplate | None:
        known(table, _TIME, "a time", "time")
        if not isinstance(table.get("column"), str):
            if timed or "column" in table:
                raise TemplateFault("the template has no column for the time", "time")
            return None
        if "format" in table and "formats" in table:
            raise TemplateFault("the time has both a format and formats", "time", "formats")
        if not isinstance(table.get("format", ""), str):
            raise TemplateFault("the format of the time is not a text", "format")
        formats = [table["format"]] if "format" in table else _texts(table, "formats")
        for each in formats if "formats" in table else ():
            _check_form(each)
        unit, zone = table.get("unit"), table.get("zone")
        if unit is not None and (not isinstance(unit, str) or unit_nanoseconds(unit) is None):
            hint = "the units are ns, us, ms, s, m, h, d, w"
            raise TemplateFault(f"'{unit}' is not a unit of time", "time", "unit", hint=hint)
        if zone is not None:
            try:
                zone_of(zone)
            except (TypeError, ValueError):
                hint = (
                    "it is a name such as Europe/Copenhagen (pip install tzdata where the system has none), or +02:00"
                )
                raise TemplateFault(f"'{zone}' is not a time zone", "time", "zone", hint=hint) from None
        return TimeTemplate(table["column"], tuple(formats), unit, zone)

    # ------------------------------------------------------------ values

    def _value(self, name: str, table: Any) -> DerivedValue:
        parts = {"column": table} if isinstance(table, str) else table
        if not isinstance(parts, dict):
            raise TemplateFault(f"the value '{name}' is not a table", "values", name)
        if name.startswith("@"):
            raise TemplateFault(f"a value cannot be named '{name}'", "values", name, hint="names with @ are taken")
        known(parts, _VALUE, "a value", "values", name)
        if len(parts.keys() & {"column", "text"}) != 1:
            raise TemplateFault(f"the value '{name}' needs one of column and text", "values", name)
        return self._derived(name, parts, "values", name)

    def _derived(self, name: str, parts: dict[str, Any], *place: str) -> DerivedValue:
        for word in ("column", "text"):
            if not isinstance(parts.get(word, ""), str):
                raise TemplateFault(f"the {word} of '{place[-1]}' is not a text", *place, word)
        default = parts.get("default")
        if not isinstance(default, str | int | float | bool | None):
            raise TemplateFault(f"the default of '{place[-1]}' is not a single value", *place, "default")
        return DerivedValue(name, parts.get("column"), parts.get("text"), self._map(parts, *place), default)

    def _map(self, parts: dict[str, Any], *place: str) -> ValueMap | None:
        if "map" in parts and "lookup" in parts:
            raise TemplateFault(f"'{place[-1]}' has both a map and a lookup", *place, "lookup")
        if "map" in parts:
            if not isinstance(parts["map"], dict):
                raise TemplateFault(f"the map of '{place[-1]}' is not a table", *place, "map")
            return ValueMap((key, _text(value, *place, "map")) for key, value in parts["map"].items())
        if "lookup" not in parts:
            if parts.keys() & {"key"}:
                raise TemplateFault(f"'{place[-1]}' has a key, but no lookup", *place, "key")
            return None
        for word in ("lookup", "key", "value"):
            if not isinstance(parts.get(word), str):
                hint = 'lookup = "stations.csv", key = "code", value = "name": columns of the file'
                raise TemplateFault(f"the lookup of '{place[-1]}' has no {word}", *place, "lookup", hint=hint)
        return self._lookup(parts["lookup"], parts["key"], parts["value"], *place)

    def _lookup(self, name: str, key: str, value: str, *place: str) -> ValueMap:
        """The values of a column of a CSV file by those of another."""
        path = self._folder / name
        delimiter = "\t" if ".tsv" in path.suffixes else ","
        try:
            lines = (line + "\n" for _, line in lines_of(path))
            rows = csv.reader(lines, delimiter=delimiter, strict=True)
            header = next(rows, [])
            check_columns((key, value), header, str(path))
            at, to = header.index(key), header.index(value)
            return ValueMap((row[at], row[to]) for row in rows if len(row) == len(header))
        except CqelsError as error:
            raise TemplateFault(
                f"the lookup file '{name}' cannot be used: {error.message}",
                *place,
                name,
                hint=error.hint or "its path is relative to the template's folder",
            ) from None
        except csv.Error as error:
            raise TemplateFault(f"the lookup file '{name}' is not CSV: {error}", *place, name) from None

    # ------------------------------------------------------------ nodes

    def _nodes(self, table: dict[str, Any]) -> tuple[NodeTemplate, ...]:
        subject, predicates, named = table.get("subject"), _table(table, "predicates"), _table(table, "nodes")
        nodes: list[NodeTemplate] = []
        if subject is not None or predicates or not named:
            if not isinstance(subject, str):
                raise _no_subject(table)
            if not predicates:
                raise TemplateFault("the template has no predicates")
            made = self._predicates(predicates, "predicates")
            nodes.append(NodeTemplate(self.expanded(subject), made, required=True))
        for name, each in named.items():
            nodes += self._node(name, each)
        self._check_links(nodes)
        return tuple(nodes)

    def _node(self, name: str, table: Any) -> list[NodeTemplate]:
        place = f"nodes.{name}"
        if not isinstance(table, dict):
            raise TemplateFault(f"the node '{name}' is not a table", "nodes", name)
        if name == MAIN or not _NAME.fullmatch(name):
            hint = f"a name has letters, digits, - and _; '{MAIN}' is the node at the top"
            raise TemplateFault(f"a node cannot be named '{name}'", place, hint=hint)
        known(table, _NODE, "a node", place)
        for word in ("subject", "each", "split", "within"):
            if not isinstance(table.get(word, ""), str):
                raise TemplateFault(f"the {word} of the node '{name}' is not a text", place, word)
        subject = table.get("subject")
        node = NodeTemplate(
            None if subject is None else self.expanded(subject),
            self._predicates(_table(table, "predicates"), place),
            name,
            tuple(_texts(table, "needs", place)),
            _truth(table, "required", place),
            table.get("each"),
            table.get("split"),
            table.get("within"),
        )
        if not node.predicates:
            raise TemplateFault(f"the node '{name}' has no predicates", place)
        if "columns" not in table:
            return [node]
        return list(self._for_columns(node, table["columns"], place))

    def _for_columns(self, node: NodeTemplate, columns: Any, place: str) -> Iterator[NodeTemplate]:
        """A node for each of some columns: `@value` is the column's, `@name` its name, or what stands for that."""
        named = dict.fromkeys(columns) if isinstance(columns, list) else columns
        if not isinstance(named, dict) or not named or not all(isinstance(each, str) for each in named):
            raise TemplateFault(f"the columns of the node '{node.name}' are not texts", place, "columns")
        if node.each is not None:
            raise TemplateFault(f"the node '{node.name}' has both columns and each", place, "columns")
        for number, (column, word) in enumerate(named.items()):
            word = column if word is None else _text(word, place, "columns")
            yield replace(
                node,
                name=f"{node.name}_{number}",
                subject=None if node.subject is None else _text_for_column(node.subject, column, word, iri=True),
                needs=(column, *(column if each == "@value" else each for each in node.needs)),
                predicates=tuple(
                    (predicate, self._for_column(each, column, word)) for predicate, each in node.predicates
                ),
            )

    def _for_column(self, template: ObjectTemplate, column: str, word: str) -> ObjectTemplate:
        """An object of a node for one of some columns."""
        for value in self._values:
            if value.name == template.column and value.column == "@value":
                name = f"={len(self._values)}"
                self._values.append(replace(value, name=name, column=column))
                return replace(template, column=name)
        if template.column == "@name":
            return replace(template, column=None, text=word)
        return replace(
            template,
            column=column if template.column == "@value" else template.column,
            iri=None if template.iri is None else _text_for_column(template.iri, column, word, iri=True),
            text=None if template.text is None else _text_for_column(template.text, column, word, iri=False),
        )

    def _check_links(self, nodes: Iterable[NodeTemplate]) -> None:
        named = {node.name: node for node in nodes}
        for node in named.values():
            links = [each.node for _, each in node.predicates if each.node is not None]
            for link in [*links, *([node.within] if node.within is not None else [])]:
                if link not in named:
                    place = f"nodes.{node.name}"
                    raise TemplateFault(f"there is no node '{link}'", place, link, hint=meant(link, named))
            seen, outer = {node.name}, node.within
            while outer is not None:
                if outer in seen:
                    raise TemplateFault(f"the node '{node.name}' is within itself", f"nodes.{node.name}", "within")
                seen.add(outer)
                outer = named[outer].within

    # ------------------------------------------------------------ predicates and objects

    def _predicates(self, table: dict[str, Any], *place: str) -> Predicates:
        return tuple(
            (RDF_TYPE if name == "a" else self.named(name), self._object(name, each, *place))
            for name, value in table.items()
            for each in (value if isinstance(value, list) else [value])
        )

    def _object(self, name: str, value: Any, *place: str) -> ObjectTemplate:
        parts = {"column": value} if isinstance(value, str) else value
        place = (*place, name)
        if not isinstance(parts, dict):
            raise TemplateFault(f"'{name}' is neither the name of a column nor a table", *place)
        known(parts, _OBJECT, "an object", *place)
        for word in ("column", "iri", "text", "node", "datatype", "language", "each", "split"):
            if not isinstance(parts.get(word, ""), str):
                raise TemplateFault(f"the {word} of '{name}' is not a text", *place, word)
        sources = [word for word in _SOURCES if word in parts and not (word == "value" and "lookup" in parts)]
        if not sources and "each" in parts:
            parts, sources = {**parts, "column": "@value"}, ["column"]
        if len(sources) != 1:
            raise TemplateFault(f"'{name}' needs one of {', '.join(_SOURCES)}", *place)
        if "split" in parts and "each" not in parts:
            raise TemplateFault(f"'{name}' has a split, but no each", *place, "split")
        made = ObjectTemplate(
            self._column(parts, *place),
            self.expanded(parts["iri"]) if "iri" in parts else None,
            parts.get("text"),
            self.named(parts["datatype"]) if "datatype" in parts else None,
            parts.get("language"),
            None,
            parts.get("node"),
            parts.get("each"),
            parts.get("split"),
            _truth(parts, "required", *place),
        )
        return replace(made, constant=_constant(parts["value"], made, *place)) if sources == ["value"] else made

    def _column(self, parts: dict[str, Any], *place: str) -> str | None:
        """The column of an object, or the value that is derived from it."""
        column: str | None = parts.get("column")
        used = [word for word in _DERIVED if word in parts]
        if not used:
            return column
        if column is None:
            hint = "name the value in [values], and write {name}"
            raise TemplateFault(f"'{place[-1]}' has a {used[0]}, but no column", *place, used[0], hint=hint)
        name = f"={len(self._values)}"
        self._values.append(self._derived(name, parts, *place))
        return name

    def named(self, name: str, *place: str) -> NamedNode:
        try:
            return NamedNode(self.expanded(name))
        except ValueError:
            raise TemplateFault(f"'{name}' is not an IRI", *place, name) from None

    def expanded(self, name: str) -> str:
        prefix, colon, local = name.partition(":")
        return self.prefixes[prefix] + local if colon and prefix in self.prefixes else name


# ---------------------------------------------------------------- parts


def known(table: dict[str, Any], words: Iterable[str], what: str, *place: str) -> None:
    """Refuse words that are not known."""
    for name in table:
        if name not in words:
            raise TemplateFault(f"{what} has no '{name}'", *place, name, hint=meant(name, words))


def meant(name: str, words: Iterable[str]) -> str:
    """What somebody may have meant, or all there is."""
    listed = list(words)
    close = get_close_matches(name, listed, 1, 0.6)
    return f"did you mean '{close[0]}'?" if close else f"there is {', '.join(listed)}"


def _no_subject(table: dict[str, Any]) -> TemplateFault:
    for name, inner in table.items():
        if isinstance(inner, dict) and "subject" in inner:
            hint = f"it is written in the table [{name}]: move it above the first line with brackets"
            return TemplateFault("the template has no subject", name, "subject", hint=hint)
    return TemplateFault("the template has no subject")


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name, {})
    if not isinstance(value, dict):
        raise TemplateFault(f"'{name}' is not a table", name)
    return value


def _texts(table: dict[str, Any], name: str, *place: str) -> list[str]:
    value = table.get(name, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TemplateFault(f"'{name}' is not a list of texts", *place, name)
    return value


def _truth(table: dict[str, Any], name: str, *place: str) -> bool:
    value = table.get(name, False)
    if not isinstance(value, bool):
        raise TemplateFault(f"'{name}' is not true or false", *place, name)
    return value


def _text(value: Any, *place: str) -> str:
    if not isinstance(value, str | int | float | bool):
        raise TemplateFault("a value is not a single one", *place)
    return lexical(value)[0]


def _constant(value: Any, template: ObjectTemplate, *place: str) -> Literal:
    if isinstance(value, datetime):
        value = Instant(parse_time(value))
    if not isinstance(value, str | int | float | bool | date | Instant):
        raise TemplateFault("a value is not a single one", *place, "value")
    text, datatype = lexical(value)
    if template.language is not None:
        return Literal(text, language=template.language)
    return Literal(text, datatype=template.datatype or datatype)


def _text_for_column(text: str, column: str, word: str, *, iri: bool) -> str:
    """A template for one column: `{@value}` becomes its place, `{@name}` its word."""

    def inserted(place: re.Match[str]) -> str:
        if place[1] == "@name":
            return quote(word, safe="") if iri else word
        return place[0].replace("@value", column) if place[1] in ("@value", "+@value") else place[0]

    return PLACE.sub(inserted, text)


def _check_form(form: str) -> None:
    hint = f"a form is as strptime's, or {ISO}, {EPOCH}, {EPOCH}-s, {EPOCH}-ms; %.f is a fraction or nothing"
    if form in (ISO, EPOCH):
        return
    if form.startswith(f"{EPOCH}-") and "%" not in form:
        if unit_nanoseconds(form.removeprefix(f"{EPOCH}-")) is None:
            raise TemplateFault(f"'{form}' has no unit of time", "formats", form, hint=hint)
        return
    signs = _SIGN.findall(form.replace("%.f", ""))
    if not signs or any(sign not in _SIGNS for sign in signs):
        raise TemplateFault(f"'{form}' is not a form of times", "formats", form, hint=hint)


def _check_names(template: Template) -> None:
    """Refuse names with @ that mean nothing, and derived values that are used before they are there."""
    iterates = any(node.each for node in template.nodes) or any(
        each.each for node in template.nodes for _, each in node.predicates
    )
    for name in template.columns:
        if name.startswith("@"):
            close = get_close_matches(name, [*SURROUNDINGS, *ITEM, "@header"], 1, 0.7)
            if close:
                told = "@header.name" if close[0] == "@header" else close[0]
                raise TemplateFault(f"'{name}' is not known", name, hint=f"did you mean '{told}'?")
    for node in template.nodes:
        for name in {*node.needs, *names_in(node.subject or "", iri=True)}:
            if name in ITEM and not iterates:
                raise TemplateFault(f"'{name}' is there only with each or columns", name)
    later = {each.name for each in template.values}
    for value in template.values:
        for name in value.names:
            if name in later and name != value.name and not is_surrounding(name):
                raise TemplateFault(f"the value '{value.name}' uses '{name}', which follows it", "values", value.name)
        later.discard(value.name)
