"""The tokenizer: what it takes is valid and gives the same terms as a strict parser; all else is left to Python."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, RdfFormat, parse

from cqels.ingest.timed_lines import parse_statements
from cqels.kernels.memory.arena import Arena
from cqels.kernels.readers.line_blocks import Block, tokenize
from cqels.kernels.readers.line_tokenizer import EMPTY, ODD, QUAD, TIMED, TRIPLE
from cqels.kernels.terms.arena_dictionary import ArenaDictionary
from cqels.kernels.terms.term_table import TAGGED
from cqels.model.dictionary import decode, encode
from cqels.model.ids import UNBOUND, inline_word
from cqels.model.numbers import double_text, single, single_text
from cqels.model.terms import XSD, Term
from cqels.model.time import SECOND, time_of

SIZE = 1 << 24
SCOPE = "f00_"
KINDS = {EMPTY: "empty", TRIPLE: "triple", QUAD: "quad", TIMED: "timed", ODD: "odd"}


def made(size: int = SIZE) -> ArenaDictionary:
    return ArenaDictionary(Arena(size=size), entries=2, piece=64)


def check(data: bytes, dictionary: ArenaDictionary | None = None, *, scope: str = SCOPE, room: int = 1) -> Block:
    """Every line that is taken is what a strict parser makes of it."""
    dictionary = dictionary or made()
    block = tokenize(dictionary, data, scope=scope, unit=SECOND, room=room)
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    assert len(block) == len(lines)
    for number, line in enumerate(lines):
        assert block.line(number) == line.removesuffix(b"\r")
        check_line(line, [int(word) for word in block.records[number]], dictionary, scope)
    return block


def check_line(line: bytes, record: list[int], dictionary: ArenaDictionary, scope: str) -> None:
    *words, fourth, kind, _ = record
    match kind:
        case 4:  # odd
            assert [*words, fourth] == [0, 0, 0, 0]
        case 0:  # empty
            assert [*words, fourth] == [0, 0, 0, 0]
            assert not list(parse(line, RdfFormat.N_QUADS))
        case _:
            (statement,) = parse_statements(line.decode(), scope)
            triple, end = statement
            assert triple is not None
            for term, word in zip(triple, words, strict=True):
                check_term(term, word, dictionary)
            if kind == TIMED:
                assert isinstance(end, Literal)
                assert time_of(end, "s") == fourth
                line = " ".join(map(str, triple)).encode() + b" ."
            elif kind == QUAD:
                check_term(end, fourth, dictionary)
            else:
                assert end is None
                assert fourth == 0
            (quad,) = parse(line, RdfFormat.N_QUADS)
            if kind == TIMED:
                assert (quad.subject, quad.predicate, quad.object) == triple
            else:
                graph = None if quad.graph_name == DefaultGraph() else quad.graph_name
                strict = (quad.subject, quad.predicate, quad.object, graph)
                assert tuple(scoped(term, scope) for term in strict) == (*triple, end)


def scoped(term: Term | None, scope: str) -> Term | None:
    return BlankNode(scope + term.value) if isinstance(term, BlankNode) else term


def check_term(term: Term | None, word: int, dictionary: ArenaDictionary) -> None:
    assert word != UNBOUND
    back = decode(word, dictionary)
    assert back == term
    assert str(back) == str(term)
    known = len(dictionary)
    assert encode(term, dictionary) == word
    assert len(dictionary) == known


def kind_of(line: bytes, **options: str) -> str:
    (kind,) = check(line or b"\n", **options).kind
    return KINDS[int(kind)]


# --- what is taken --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("<a:s> <a:p> <a:o> .", "triple"),
        ("<a:s>\t<a:p>  \t<a:o>\t.  ", "triple"),
        ("<a:s> <a:p> <a:o>.", "triple"),
        ("_:a <a:p> _:b-1.c .", "triple"),
        ('<a:s> <a:p> "words, é, 日本, 🎈" <a:g> .', "quad"),
        ('<a:s> <a:p> ""@en .', "triple"),
        ('<a:s> <a:p> "x"@en-us .', "triple"),
        ('<a:s> <a:p> "x"@zh-hant .', "triple"),
        ('<a:s> <a:p> "x" _:g .', "quad"),
        (f'<a:s> <a:p> "x"^^<{XSD}string> .', "triple"),
        (f'<a:s> <a:p> "007"^^<{XSD}integer> .', "triple"),
        ('<a:s> <a:p> "x"^^<http://example.org/type> .', "triple"),
        ("<http://example.org:8080/a/b;c?d=e/f?g#h/i?j> <http://é.org/> <http://example.org/%C3%a9/é> .", "odd"),
        ("<http://example.org:8080/a/b;c?d=e/f?g#h/i?j> <http://e.org> <http://example.org/%C3%a9/é> .", "triple"),
        ("<urn:uuid:0c1-2> <mailto:a@b> <tag:x,2024:y> .", "triple"),
        ("<a:s> <a:p> <a:o> 12 .", "timed"),
        ("<a:s> <a:p> <a:o> -12", "timed"),
        ('<a:s> <a:p> <a:o> "12"', "timed"),
        (f'<a:s> <a:p> <a:o> "12"^^<{XSD}long> .', "timed"),
        (f'<a:s> <a:p> "1"^^<{XSD}float> "2024-01-01T00:00:00.123456789+01:00"^^<{XSD}dateTime> .', "timed"),
        ('<a:s> <a:p> "x" "2024-01-01T24:00:00" .', "timed"),
        ("", "empty"),
        ("  ", "empty"),
        ("# a comment <a:b>", "empty"),
    ],
)
def test_common_lines(line: str, kind: str) -> None:
    assert kind_of(line.encode()) == kind
    assert kind_of(line.encode() + b"\r\n", scope="") == kind_of(line.encode(), scope="") == kind


@pytest.mark.parametrize(
    "line",
    [
        b"<a:s> <a:p> <a:o>",
        b"<a:s> <a:p> <a:o> <a:g>",
        b"<a:s> <a:p> <a:o> . # comment",
        b"<a:s> <a:p> <a:o> . <a:s> <a:p> <a:o> .",
        b"<a:s> <a:p> <a:o> ..",
        b"<a:s> <a:p> .",
        b"<a:s> <a:p",
        b"<a:s",
        b"<",
        b"_",
        b"_:",
        b"<a:s> _:p <a:o> .",
        b'<a:s> "p" <a:o> .',
        b'"s" <a:p> <a:o> .',
        b'<a:s> <a:p> "o',
        b'<a:s> <a:p> "o"^',
        b'<a:s> <a:p> "o"^^',
        b'<a:s> <a:p> "o"^^<a:t',
        b'<a:s> <a:p> "o"@',
        b'<a:s> <a:p> "a\\tb" .',
        b'<a:s> <a:p> "a\tb" .',
        b'<a:s> <a:p> "\x7f" .',
        b'<a:s> <a:p> "\xff" .',
        b'<a:s> <a:p> "\xc3" .',
        b'<a:s> <a:p> "\xed\xa0\x80" .',
        b'<a:s> <a:p> "\xf4\x90\x80\x80" .',
        b'<a:s> <a:p> "\xc0\x80" .',
        b'<a:s> <a:p> "\xef\xbf\xbf" .',
        b'<a:s> <a:p> "x"@EN .',
        b'<a:s> <a:p> "x"@toolonglang .',
        b'<a:s> <a:p> "x"@en--ltr .',
        b'<a:s> <a:p> "x"^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString> .',
        b"<a:s> <a:p> <relative> .",
        b"<a:s> <a:p> <a:b c> .",
        b"<a:s> <a:p> <a:%zz> .",
        b"<a:s> <a:p> <a:%a> .",
        b"<a:s> <a:p> <a:x#y#z> .",
        b"<a:s> <a:p> <a:[x]> .",
        b"<a:s> <a:p> <http://a:b/> .",
        b"<a:s> <a:p> <a:\xee\x80\x80> .",
        b"<a:s> <a:p> _:.a .",
        b"<a:s> <a:p> _:a. .",
        b"<a:s> <a:p> _:a.",
        b"<a:s> <a:p> <a:o> 1.5 .",
        b"<a:s> <a:p> <a:o> 9999999999999999999 .",
        b"<a:s> <a:p> <a:o> 99999999999999999 .",
        b'<a:s> <a:p> <a:o> "soon" .',
        b'<a:s> <a:p> <a:o> "2024-13-01T00:00:00Z" .',
        b'<a:s> <a:p> <a:o> "9024-01-01T00:00:00Z" .',
        b"12 .",
        b"<<( <a:s> <a:p> <a:o> )>> <a:p> <a:o> .",
        b"\xef\xbb\xbf<a:s> <a:p> <a:o> .",
        b"# \xff",
    ],
)
def test_lines_left_to_python(line: bytes) -> None:
    assert kind_of(line) == "odd"


def test_a_text_that_a_lenient_parser_let_in_is_not_taken() -> None:
    dictionary = made()
    (quad,) = parse("<a:> <a:> <not absolute> .", format=RdfFormat.N_TRIPLES, lenient=True)
    dictionary.intern(quad.object)
    dictionary.intern(NamedNode("a:known"))
    block = check(b"<a:s> <a:p> <not absolute> .\n<a:s> <a:p> <a:known> .\n", dictionary)
    assert block.kind.tolist() == [ODD, TRIPLE]


def test_pieces_of_a_stream() -> None:
    """Blocks cut anywhere give the same words as the whole."""
    lines = [f'<a:s{number % 7}> <a:p> "{number}"^^<{XSD}integer> _:g{number} .' for number in range(50)]
    data = "\n".join(lines).encode()
    whole = tokenize(made(), data)
    for size in (1, 17, 40, 300):
        dictionary, rest, rows = made(), b"", []
        for start in range(0, len(data), size):
            rest += data[start : start + size]
            final = start + size >= len(data)
            block = tokenize(dictionary, rest, final=final, room=1)
            rows += block.records[:, :5].tolist()
            rest = rest[block.end :]
        assert rows == whole.records[:, :5].tolist()


def test_a_full_arena_says_so_and_loses_nothing() -> None:
    dictionary = made(1 << 16)
    data = "".join(f"<http://example.org/{number:050}> <a:p> <a:o> .\n" for number in range(2000)).encode()
    with pytest.raises(MemoryError, match="full"):
        tokenize(dictionary, data)
    known = len(dictionary)
    assert known > 20
    ids = range(TAGGED + 1, TAGGED + known + 1)
    assert [dictionary.find(dictionary.term(id)) for id in ids] == list(ids)


def test_a_snapshot_reads_on() -> None:
    dictionary = made()
    data = b'<a:s> <a:p> _:x <a:g> .\n<a:s> <a:q> "x"@en <a:g> .\n'
    before = check(data, dictionary)
    arena = Arena(size=SIZE)
    arena.restore(dictionary.arena.snapshot())
    again = check(data, ArenaDictionary(arena, dictionary.offset))
    assert again.records.tolist() == before.records.tolist()


def test_scopes_differ_and_have_a_limit() -> None:
    dictionary = made()
    one, other = (tokenize(dictionary, b"_:x <a:p> _:x .", scope=scope) for scope in ("f1_", "f2_"))
    assert one.subject[0] == one.object[0] != other.subject[0]
    long = b"_:" + b"x" * 500 + b" <a:p> <a:o> ."
    assert kind_of(long) == "triple"
    assert kind_of(long, scope="s" * 100) == "odd"
    with pytest.raises(ValueError, match="longer than 126"):
        tokenize(dictionary, b"", scope="x" * 127)


# --- words of literals ----------------------------------------------------------------------------------------------


def words_of(texts: list[str], name: str) -> list[int | None]:
    """The words the tokenizer gives to literals, None for lines that it leaves to Python; all are checked."""
    dictionary = made()
    data = "".join(f'<a:s> <a:p> "{text}"^^<{XSD}{name}> .\n' for text in texts).encode()
    block = tokenize(dictionary, data)
    words: list[int | None] = []
    for text, word, kind in zip(texts, block.object.tolist(), block.kind.tolist(), strict=True):
        if kind == ODD:
            words.append(None)
            continue
        literal = Literal(text, datatype=NamedNode(XSD + name))
        assert encode(literal, dictionary) == word, text
        assert (word < 0) == (inline_word(literal) is not None), text
        words.append(word)
    return words


digits = st.text("0123456789", max_size=18)
TEXTS = {
    "integer": st.one_of(st.integers().map(str), st.integers(-(2**58), 2**58).map(str), digits),
    "decimal": st.one_of(
        st.builds("{}{}.{}".format, st.sampled_from(["", "-", "+"]), digits, digits),
        st.decimals(-(10**17), 10**17, places=4).map("{:f}".format),
        digits,
    ),
    "double": st.one_of(
        st.floats().map(double_text),
        st.floats(1e-4, 1e17).map(double_text),
        st.builds("{}{}.{}".format, st.sampled_from(["", "-", "+"]), digits, digits),
        st.builds("{}.{}E{}".format, st.integers(-11, 11), digits, st.integers(-25, 25)),
        st.builds("{}{}{}".format, digits, st.sampled_from([".", "e", "E", ".5e", ".0E-", "E0"]), digits),
        st.sampled_from(["INF", "-INF", "NaN", "+INF", "0.0", "-0.0", "0.0E0", "-", "."]),
    ),
    "float": st.one_of(
        st.floats(width=32).map(single_text),
        st.floats(1e-4, 1e17).map(single).map(single_text),
        st.floats(1e-4, 1e17).map(double_text),
        st.builds("{}.{}".format, digits, digits),
        st.sampled_from(["INF", "-INF", "NaN", "+INF", "0.0", "-0.0", "16777216.0", "1073741800.0", "1073741824.0"]),
    ),
    "boolean": st.sampled_from(["true", "false", "1", "0", "TRUE", "truex", ""]),
    "dateTime": st.one_of(
        st.builds(
            "{}{}{}".format,
            st.datetimes().map(lambda moment: moment.replace(microsecond=0).isoformat()),
            st.sampled_from(["", ".0", ".000", ".5", ".50", ".500", ".123", ".1230", ".120", ".1234", "."]),
            st.sampled_from(["", "Z", "+00:00", "-00:00", "+05:30", "-14:00", "+14:01", "+5:00", "z"]),
        ),
        st.text("0123456789-T:.Z+", max_size=24),
        st.sampled_from(["-0001-01-01T00:00:00Z", "4200-01-01T00:00:00Z", "10000-01-01T00:00:00Z"]),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_inline_words_are_those_of_the_model(name: str) -> None:
    @given(st.lists(TEXTS[name], min_size=20, max_size=60))
    @settings(max_examples=40)
    def run(texts: list[str]) -> None:
        words_of(texts, name)

    run()


def test_printed_numbers_are_taken() -> None:
    """Numbers as programs print them without an exponent are not left to Python."""
    draw = random.Random(5)
    doubles = [draw.uniform(-1, 1) * 10 ** draw.randrange(-2, 15) for _ in range(20_000)]
    doubles += [draw.randrange(10**6) / 100 for _ in range(1000)]
    floats = struct.unpack("<5000f", struct.pack("<5000f", *(draw.gauss(0, 100) for _ in range(5000))))
    for texts, name in ((map(double_text, doubles), "double"), (map(single_text, floats), "float")):
        words = words_of([text for text in texts if "E" not in text], name)
        assert len(words) > 4990
        assert all(word is not None and word < 0 for word in words)


def test_neighbours_of_printed_doubles() -> None:
    """A last digit more or less: mostly another text of the same or the next double, which is not how it is printed."""
    draw = random.Random(6)
    texts = []
    for _ in range(3000):
        text = double_text(draw.uniform(0.001, 1) * 10 ** draw.randrange(0, 16))
        texts += [text[:-1] + digit for digit in "123456789"] + [text + "1", text[:-1]]
    words_of(texts, "double")
    words_of([text for text in texts if len(text) < 13], "float")


@given(
    st.datetimes(datetime(1700, 1, 1), datetime(2250, 1, 1)), st.integers(0, 999_999_999), st.integers(-(2**40), 2**40)
)
def test_times(moment: datetime, nanosecond: int, count: int) -> None:
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    text = f"{moment:%Y-%m-%dT%H:%M:%S}.{nanosecond:09}Z"
    block = check(f'<a:s> <a:p> <a:o> "{text}"^^<{XSD}dateTime> .\n<a:s> <a:p> <a:o> {count}\n'.encode())
    whole = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    assert block.fourth.tolist()[0] == int(whole) * SECOND + nanosecond
    assert block.kind.tolist()[0] == TIMED


# --- random lines ---------------------------------------------------------------------------------------------------

IRIS = [
    "<a:s>",
    "<http://example.org/a>",
    "<http://example.org:80/a?b#c>",
    "<urn:x:y>",
    "<http://a@b/>",
    "<http://[::1]/>",
    "<http://é/é>",
    "<relative>",
    "<a:%41>",
    "<http://a/%C3%A9?q=ü>",
    "<http:>",
    "<http:///a>",
    "<a:/b//c>",
    "<A+b.c-d:e>",
]
BLANKS = ["_:a", "_:b1", "_:0", "_:a.b", "_:a-", "_:é", "_:a_b"]
LITERALS = (
    f'"x" "" "é🎈" "a\\tb" "a\\"b" "x"@en "x"@en-GB "x"@de-de "1"^^<{XSD}integer> "1.50"^^<{XSD}decimal> '
    f'"1.5"^^<{XSD}double> "x"^^<{XSD}integer> "x"^^<a:t> "x"^^<{XSD}string> "2024-01-01T00:00:00Z"^^<{XSD}dateTime> '
    f'"true"^^<{XSD}boolean> "1E0"^^<{XSD}double> "2024-01-01"^^<{XSD}date>'
).split(" ")
TIMES = [
    "12",
    "-5",
    "+7",
    '"12"',
    '"2024-01-01T00:00:00Z"',
    f'"5"^^<{XSD}long>',
    f'"2024-01-01T00:00:00"^^<{XSD}dateTime>',
]
GAPS = st.sampled_from([" ", " ", " ", "\t", "  ", ""])

valid_lines = st.builds(
    lambda s, p, o, f, gaps, end: f"{s}{gaps[0]}{p}{gaps[1]}{o}{gaps[2]}{f}{end}".encode(),
    st.sampled_from(IRIS + BLANKS),
    st.sampled_from(IRIS),
    st.sampled_from(IRIS + BLANKS + LITERALS),
    st.sampled_from(["", *IRIS, *BLANKS, *TIMES]),
    st.tuples(GAPS, GAPS, GAPS),
    st.sampled_from([" .", ".", " . ", "", " .\r", " . # x"]),
)


def _mutate(line: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for place, cut, new in changes:
        at = place % (len(line) + 1)
        line = line[:at] + new + line[at + cut :]
    return line.replace(b"\n", b" ")


BYTES = st.one_of(
    st.binary(max_size=2),
    st.sampled_from(
        [bytes([value]) for value in b'<>"_:.@^\\%#/?[] \t\r-+0aZ'] + [b"\xc3\xa9", b"\xef\xbf\xbe", b"^^<", b"://"]
    ),
)
mutated_lines = st.builds(
    _mutate, valid_lines, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 2), BYTES), min_size=1, max_size=3)
)


@settings(max_examples=150)
@given(st.lists(st.one_of(valid_lines, mutated_lines), min_size=1, max_size=20), st.sampled_from(["", SCOPE]))
def test_random_lines(lines: list[bytes], scope: str) -> None:
    check(b"\n".join(lines) + b"\n", scope=scope, room=3)


@settings(max_examples=80)
@given(st.lists(st.text('<>_:ab/#?%4@[].é\ue000"', max_size=14), min_size=20, max_size=60))
def test_random_iris(texts: list[str]) -> None:
    check("".join(f"<a:s> <a:p> <{text}> .\n<http://{text}> <a:p> <a:o> .\n" for text in texts).encode())
