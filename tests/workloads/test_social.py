"""The social network: what its queries answer is what plain Python finds in the files."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from cqels.scenarios import Data, scenario
from cqels.scenarios.answers import answers, written

SOCIAL = scenario("social")
MILLISECOND = 1_000_000
Line = tuple[int, str, str, str]
"""A time in milliseconds, a subject, the last part of a predicate, an object."""
Row = tuple[int, tuple[str, ...]]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return SOCIAL.make(tmp_path_factory.mktemp("social"), SOCIAL.numbers("small"), 1, lambda done, all: None)


def lines(data: Data, stream: str) -> list[Line]:
    """What a stream's file has, line by line."""
    path = next(each.path for each in data.declarations if each.iri.endswith("/" + stream))
    found = []
    for line in Path(path).read_text().splitlines():
        subject, predicate, rest = line.removesuffix(" .").split(" ", 2)
        value, _, time = rest.rpartition(" ")
        found.append((int(time), subject, _last(predicate), value))
    return found


def known(data: Data, predicate: str) -> dict[str, set[str]]:
    """What the static file says of each subject with a predicate."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in data.static[0][0].read_text().splitlines():
        subject, named, value = line.removesuffix(" .").split(" ", 2)
        if _last(named) == predicate:
            found[subject].add(value)
    return found


def _last(iri: str) -> str:
    return iri.strip("<>").replace("#", "/").rsplit("/", 1)[1]


def answered(data: Data, name: str, **constants: str) -> list[Row]:
    """The times and rows that a query sends."""
    query = SOCIAL.query(SOCIAL.asked([name])[0], **constants)
    return [(each.nanoseconds // MILLISECOND, tuple(map(str, each.values))) for each in answers([query], data)[name]]


def test_posts_of_friends(data: Data) -> None:
    """q3: whatever a friend creates is told when it is created."""
    friends = known(data, "knows")["<http://www.ins.cwi.nl/sib/user/u3>"]
    created = [(time, (user, post)) for time, user, what, post in lines(data, "poststream") if what == "creator_of"]
    assert sorted(answered(data, "q3")) == sorted(each for each in created if each[1][0] in friends)


def test_posts_with_the_same_tag(data: Data) -> None:
    """q4: two posts of one user with one hashtag, no more than 15 seconds apart, are told when the later comes."""
    posts = lines(data, "poststream")
    author = {post: user for _, user, what, post in posts if what == "creator_of"}
    tagged = [(time, author[post], post, tag) for time, post, what, tag in posts if what == "hashtag"]
    expected = [
        (max(time, later), (user, one, other, tag))
        for time, user, one, tag in tagged
        for later, same_user, other, same_tag in tagged
        if one != other and (user, tag) == (same_user, same_tag) and abs(later - time) <= 15_000
    ]
    assert sorted(answered(data, "q4")) == sorted(expected)


def test_posts_liked_by_friends(data: Data) -> None:
    """q6: a like of a post of the last minute is told to those who follow its channel and know who likes it."""
    follows, knows = known(data, "subscriber_of"), known(data, "knows")
    posts = {post: (time, forum) for time, forum, what, post in lines(data, "poststream") if what == "container_of"}
    expected, last = [], {}
    for time, friend, _, post in lines(data, "likedpoststream"):
        again = time - last.get((friend, post), -1000) <= 100
        last[friend, post] = time
        posted, channel = posts[post]
        if not again and time - posted <= 60_000:
            expected += [
                (time, (user, friend, post, channel))
                for user in follows
                if channel in follows[user] and friend in knows[user]
            ]
    assert sorted(answered(data, "q6")) == sorted(expected)


def test_posts_of_each_tag(data: Data) -> None:
    """q10: with each post, the counts of the last ten seconds that are not what they were."""
    tagged = [(time, tag) for time, _, what, tag in lines(data, "poststream") if what == "hashtag"]
    expected: list[Row] = []
    before: Counter[str] = Counter()
    for now in sorted({time for time, _ in tagged}):
        counts = Counter(tag for time, tag in tagged if now - 10_000 <= time <= now)
        integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
        expected += [(now, (tag, f'"{count}"{integer}')) for tag, count in counts.items() if count != before[tag]]
        before = counts
    assert sorted(answered(data, "q10")) == sorted(expected)


@pytest.mark.parametrize("name", [each.name for each in SOCIAL.queries if each.name.endswith("-count")])
def test_count_windows_that_fill(data: Data, name: str) -> None:
    """The judge agrees where windows are so small that triples leave them."""
    query = SOCIAL.query(SOCIAL.asked([name])[0], triples="150", likes="10")
    found, judged = (
        written(query, answers([query], data, engine=engine)[name]) for engine in ("embedded", "reference")
    )
    assert found == judged
