"""YARRRML mappings as lifting templates: the subset that templates cover; the rest is refused with its place.

YARRRML has no word for the time of a record, so `time` is one more key of the document, with the words that `[time]`
has in a template.  A mapping is a node, its subject an IRI or, without one, a blank node.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyoxigraph import NamedNode

from cqels.ingest.template_file import TemplateFault, TemplateReader
from cqels.ingest.template_model import NodeTemplate, ObjectTemplate, Predicates, Template
from cqels.model.errors import DataError, Source, Span
from cqels.model.terms import RDF_TYPE

_HINT = "supported are prefixes, sources, time, and mappings with sources, subjects and predicateobjects"
_SUBJECTS = ("s", "subject", "subjects")
_PREDICATE_OBJECTS = ("po", "predicateobject", "predicateobjects")
_PREDICATES = ("p", "predicate", "predicates")
_OBJECTS = ("o", "object", "objects")
_SOURCES = ("source", "sources")
_VALUES = ("v", "value")
_REFERENCE = re.compile(r"\$\(((?:[^()\\]|\\.)+)\)")
_ESCAPE = re.compile(r"\\(.)")
_ITERATOR = re.compile(r"\$(?:\.([^\[\]$*]+))?(\[\*\])?")
_IRI, _LANG = "~iri", "~lang"


def read_yarrrml(source: Source, folder: Path, *, timed: bool) -> Template:
    """The template that a document stands for; a DataError says what does not fit."""
    try:
        yaml: Any = importlib.import_module("yaml")
    except ModuleNotFoundError:
        place = Source("", source.name)
        hint = "pip install 'cqels[yarrrml]'"
        raise DataError("a YARRRML mapping needs the library PyYAML", source=place, hint=hint) from None
    try:
        root = yaml.compose(source.text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        span = None if mark is None else Span(mark.index, mark.index + 1)
        reason = getattr(error, "problem", None) or "it cannot be read"
        raise DataError(f"the mapping is not YAML: {reason}", source=source, span=span) from None
    try:
        return _Document(yaml, folder).template(root, timed=timed)
    except _Fault as fault:
        span = None if fault.node is None else Span(fault.node.start_mark.index, fault.node.end_mark.index)
        raise DataError(fault.message, source=source, span=span, hint=fault.hint) from None


class _Fault(Exception):
    """What is not supported, and the node of YAML that has it."""

    def __init__(self, message: str, node: Any, hint: str = _HINT) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint


class _Document:
    """Reads one document. Nodes of YAML are of the library's classes."""

    def __init__(self, yaml: Any, folder: Path) -> None:
        self._yaml = yaml
        self._reader = TemplateReader(folder)
        self._named: dict[str, list[str]] = {}
        """The nodes of each mapping, one for each of its subjects."""
        self._sources: dict[str, str | None] = {}
        """The arrays that named sources go through."""

    def template(self, root: Any, *, timed: bool) -> Template:
        if root is None:
            raise _Fault("the document is empty", None)
        keys = self._keys(root, "prefixes", "sources", "time", "mappings", "mapping", "m", "authors", "author")
        for prefix, namespace in self._pairs(keys.get("prefixes")):
            self._reader.prefixes[prefix] = self._text(namespace)
        for name, node in self._pairs(keys.get("sources")):
            self._sources[name] = self._iterated(node)
        mappings = self._one(keys, ("mappings", "mapping", "m"))
        if mappings is None:
            raise _Fault("the document has no mappings", root)
        found = list(self._pairs(mappings))
        for name, node in found:
            label = re.sub(r"[^A-Za-z0-9_]", "_", name)
            count = len(self._subjects(node))
            self._named[name] = [f"{label}_{len(self._named)}_{number}" for number in range(count)]
        nodes = tuple(each for name, node in found for each in self._mapping(name, node))
        time = keys.get("time")
        if time is None and timed:
            hint = "YARRRML has no word for it: write  time: {column: …}  beside mappings"
            raise _Fault("the document has no time", None, hint)
        try:
            stamp = self._reader.time({} if time is None else self._plain(time), timed=timed)
        except TemplateFault as fault:
            raise _Fault(fault.message, time, fault.hint) from None
        return Template(nodes, stamp, prefixes=tuple(self._reader.prefixes.items()))

    # ------------------------------------------------------------ mappings

    def _mapping(self, name: str, node: Any) -> Iterator[NodeTemplate]:
        keys = self._keys(node, *_SUBJECTS, *_PREDICATE_OBJECTS, *_SOURCES)
        body = self._one(keys, _PREDICATE_OBJECTS)
        if body is None:
            raise _Fault(f"the mapping '{name}' has no predicateobjects", node)
        predicates = tuple(each for item in self._items(body) for each in self._predicate_objects(item))
        given = self._one(keys, _SOURCES)
        arrays = [] if given is None else [self._iterated(item) for item in self._listed_sources(given)]
        if len(set(arrays)) > 1:
            raise _Fault(f"the mapping '{name}' has several sources", given)
        each = arrays[0] if arrays else None
        for label, subject in zip(self._named[name], self._subjects(node), strict=True):
            yield NodeTemplate(subject, predicates, label, each=each)

    def _subjects(self, node: Any) -> list[str | None]:
        """The subjects of a mapping as templates; None for a blank node."""
        keys = self._keys(node, *_SUBJECTS, *_PREDICATE_OBJECTS, *_SOURCES)
        found = self._one(keys, _SUBJECTS)
        if found is None:
            return [None]
        return [self._iri(self._text(item), item) for item in self._items(found)]

    def _listed_sources(self, node: Any) -> list[Any]:
        """A name of a source, or a list of sources, each a name or a list."""
        return self._items(node) if isinstance(node, self._yaml.SequenceNode) else [node]

    def _iterated(self, node: Any) -> str | None:
        """The array that a source goes through; None if each record is one."""
        if isinstance(node, self._yaml.ScalarNode):
            return self._sources.get(node.value)
        if isinstance(node, self._yaml.MappingNode):
            keys = self._keys(node, "access", "referenceFormulation", "iterator", "type", "delimiter", "encoding")
            iterator = keys.get("iterator")
        else:
            items = self._items(node)
            iterator = items[1] if len(items) > 1 else None
        if iterator is None:
            return None
        found = _ITERATOR.fullmatch(self._text(iterator))
        if found is None or (found[1] and not found[2]):
            hint = "an iterator is $, $[*] or $.member[*]"
            raise _Fault(f"the iterator '{iterator.value}' is not supported", iterator, hint)
        return found[1]

    # ------------------------------------------------------------ predicates and objects

    def _predicate_objects(self, node: Any) -> Predicates:
        if isinstance(node, self._yaml.SequenceNode):
            items = self._items(node)
            if len(items) not in (2, 3):
                raise _Fault("a predicate and its object are a list of two, or of three with a datatype", node)
            predicates, objects, *kinds = items
            kind = kinds[0] if kinds else None
        else:
            keys = self._keys(node, *_PREDICATES, *_OBJECTS, "datatype", "language")
            first, second = self._one(keys, _PREDICATES), self._one(keys, _OBJECTS)
            if first is None or second is None:
                raise _Fault("there is no predicate, or no object", node)
            predicates, objects, kind = first, second, None
        names = [self._predicate(item) for item in self._items(predicates)]
        is_type = RDF_TYPE in names
        # a list in the place of an object is a list of objects
        found = [each for item in self._items(objects) for each in self._object(item, kind, is_type=is_type)]
        return tuple((name, each) for name in names for each in found)

    def _predicate(self, node: Any) -> NamedNode:
        name = self._text(node)
        if name == "a":
            return RDF_TYPE
        if _REFERENCE.search(name):
            raise _Fault(f"the predicate '{name}' depends on a column", node, "write the IRI of the predicate")
        return self._named_node(name.removesuffix(_IRI), node)

    def _object(self, node: Any, kind: Any, *, is_type: bool) -> Iterator[ObjectTemplate]:
        if isinstance(node, self._yaml.MappingNode):
            yield from self._long_object(node, is_type=is_type)
            return
        if isinstance(node, self._yaml.SequenceNode):
            items = self._items(node)
            if len(items) not in (1, 2):
                raise _Fault("an object is a value, or a list of a value and a datatype", node)
            node, kind = items[0], items[1] if len(items) > 1 else kind
        text = self._text(node)
        if is_type or text.endswith(_IRI):
            yield ObjectTemplate(iri=self._iri(text, node))
        else:
            yield self._literal(text, node, *self._kind(kind))

    def _long_object(self, node: Any, *, is_type: bool) -> Iterator[ObjectTemplate]:
        keys = self._keys(node, *_VALUES, "datatype", "language", "type", "mapping")
        if (mapping := keys.get("mapping")) is not None:
            for item in self._items(mapping):
                name = self._text(item)
                if name not in self._named:
                    raise _Fault(f"there is no mapping '{name}'", item, f"there is {', '.join(self._named)}")
                yield from (ObjectTemplate(node=each) for each in self._named[name])
            return
        value = self._one(keys, _VALUES)
        if value is None:
            raise _Fault("the object has no value", node)
        text = self._text(value)
        written = "iri" if is_type or text.endswith(_IRI) else "literal"
        match self._text(keys["type"]) if "type" in keys else written:
            case "iri":
                yield ObjectTemplate(iri=self._iri(text, value))
            case "literal":
                datatype, language = keys.get("datatype"), keys.get("language")
                yield self._literal(
                    text,
                    value,
                    None if datatype is None else self._named_node(self._text(datatype), datatype),
                    None if language is None else self._text(language),
                )
            case other:
                raise _Fault(f"objects of the type '{other}' are not supported", keys["type"], "it is iri or literal")

    def _kind(self, node: Any) -> tuple[NamedNode | None, str | None]:
        """The datatype or the language that is written behind an object."""
        if node is None:
            return None, None
        text = self._text(node)
        if text.endswith(_LANG):
            return None, text.removesuffix(_LANG)
        return self._named_node(text, node), None

    def _literal(self, text: str, node: Any, datatype: NamedNode | None, language: str | None) -> ObjectTemplate:
        whole = _REFERENCE.fullmatch(text)
        if whole is not None:
            return ObjectTemplate(column=_unescaped(whole[1]), datatype=datatype, language=language)
        return ObjectTemplate(text=self._template(text, node), datatype=datatype, language=language)

    def _iri(self, text: str, node: Any) -> str:
        made = self._reader.expanded(self._template(text.removesuffix(_IRI), node))
        if "{" not in made:
            self._named_node(made, node)
        return made

    def _template(self, text: str, node: Any) -> str:
        """A text with `{name}` for `$(name)`."""
        if "{" in text or "}" in text:
            raise _Fault(f"'{text}' has braces, which a template cannot have", node)
        return _REFERENCE.sub(lambda found: "{" + _unescaped(found[1]) + "}", text)

    def _named_node(self, name: str, node: Any) -> NamedNode:
        try:
            return NamedNode(self._reader.expanded(name))
        except ValueError:
            raise _Fault(f"'{name}' is not an IRI", node, "is its prefix declared?") from None

    # ------------------------------------------------------------ nodes of YAML

    def _pairs(self, node: Any) -> Iterator[tuple[str, Any]]:
        if node is None:
            return
        if not isinstance(node, self._yaml.MappingNode):
            raise _Fault("this is not a table of names and values", node)
        yield from ((self._text(key), value) for key, value in node.value)

    def _keys(self, node: Any, *known: str) -> dict[str, Any]:
        if not isinstance(node, self._yaml.MappingNode):
            raise _Fault("this is not a table of names and values", node)
        for key, _ in node.value:
            if key.value not in known:
                raise _Fault(f"'{key.value}' is not supported here", key, f"supported here are {', '.join(known)}")
        return {key.value: value for key, value in node.value}

    def _one(self, keys: dict[str, Any], names: tuple[str, ...]) -> Any:
        """The value of a key that has several names."""
        return next((keys[name] for name in names if name in keys), None)

    def _items(self, node: Any) -> list[Any]:
        """The items of a list, or a single one."""
        return list(node.value) if isinstance(node, self._yaml.SequenceNode) else [node]

    def _text(self, node: Any) -> str:
        if not isinstance(node, self._yaml.ScalarNode):
            raise _Fault("this is not a text", node)
        return str(node.value)

    def _plain(self, node: Any) -> Any:
        if isinstance(node, self._yaml.MappingNode):
            return {self._text(key): self._plain(value) for key, value in node.value}
        if isinstance(node, self._yaml.SequenceNode):
            return [self._plain(each) for each in node.value]
        return self._text(node)


def _unescaped(name: str) -> str:
    return _ESCAPE.sub(r"\1", name)
