"""The people of the network: who knows whom, what they care about, which channels they follow; nothing happens here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Random = np.random.Generator

SIB = "http://www.ins.cwi.nl/sib/"
VOCABULARY = SIB + "vocabulary/"
SIOC = "http://rdfs.org/sioc/ns#"
FOAF = "http://xmlns.com/foaf/0.1/"
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"

INTERESTS = 5
"""Hashtags that somebody cares about."""
FRIENDS = 20
"""Friends that somebody has on average, fewer where there are few users."""
MEMBERS = 15
"""Members of a group."""
TOWNS = 10


@dataclass(frozen=True, slots=True)
class Lists:
    """A list of numbers for each of some things: those of number n are from `starts[n]` to `starts[n + 1]`."""

    values: Integers
    starts: Integers

    @classmethod
    def of(cls, owners: Integers, values: Integers, count: int) -> Lists:
        """The lists of `count` owners, from pairs without duplicates."""
        order = np.lexsort((values, owners))
        return cls(values[order], np.searchsorted(owners[order], np.arange(count + 1)))

    def one(self, owners: Integers, random: Random) -> Integers:
        """One of each owner's values, drawn at random."""
        sizes = self.starts[owners + 1] - self.starts[owners]
        return self.values[self.starts[owners] + (random.random(len(owners)) * sizes).astype(np.int64)]

    def pairs(self) -> Iterator[tuple[int, int]]:
        owners = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return zip(owners.tolist(), self.values.tolist(), strict=True)


@dataclass(frozen=True, slots=True)
class Network:
    """Users are numbers; the wall of user n is channel n, and the channels of groups come after the walls."""

    users: int
    tags: int
    activity: NDArray[np.float64]
    """How likely it is that something was done by this user."""
    friends: Lists
    follows: Lists
    """The channels of each user, the own wall among them."""
    interests: Integers
    """The hashtags of each user, a row for each."""
    homes: NDArray[np.float64]
    """Latitude and longitude of each user's home."""


def make_network(users: int, random: Random) -> Network:
    """Some have many friends, most have few: the number of friends follows a power law, and so does what they do."""
    activity = (np.arange(users, dtype=np.float64) + users / 100 + 1) ** -0.5
    activity /= activity.sum()
    tags = 20 + users // 5
    popular = 1 / (np.arange(tags) + 3)
    towns = np.column_stack([random.uniform(45, 55, TOWNS), random.uniform(0, 15, TOWNS)])
    friends = _friends(users, activity, random)
    return Network(
        users,
        tags,
        activity,
        friends,
        _follows(users, friends, random),
        random.choice(tags, (users, INTERESTS), p=popular / popular.sum()),
        towns[random.integers(0, TOWNS, users)] + random.uniform(-0.05, 0.05, (users, 2)),
    )


def _friends(users: int, activity: NDArray[np.float64], random: Random) -> Lists:
    """Pairs drawn by activity, in both directions; everybody knows the next one, so that nobody is alone."""
    drawn = random.choice(users, (users * min(FRIENDS, 1 + users // 8) // 2, 2), p=activity)
    next_to = np.column_stack([np.arange(users), (np.arange(users) + 1) % users])
    pairs = np.concatenate([drawn, next_to])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    both = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    return Lists.of(both[:, 0], both[:, 1], users)


def _follows(users: int, friends: Lists, random: Random) -> Lists:
    """Everybody follows the own wall, those of half of the friends, and the channels of some groups."""
    walls = np.column_stack([np.arange(users), np.arange(users)])
    known = np.array(list(friends.pairs()))
    known = known[random.random(len(known)) < 0.5]
    groups = 1 + users // 10
    members = random.integers(0, users, groups * MEMBERS)
    channels = users + np.repeat(np.arange(groups), MEMBERS)
    pairs = np.unique(np.concatenate([walls, known, np.column_stack([members, channels])]), axis=0)
    return Lists.of(pairs[:, 0], pairs[:, 1], users)


def static_lines(network: Network) -> Iterator[str]:
    """What is known of the users before anything happens, as N-Triples."""
    for user in range(network.users):
        name, person = f"<{SIB}user/u{user}>", f"<{SIB}person/p{user}>"
        yield f"{name} <{TYPE}> <{VOCABULARY}User> .\n"
        yield f"{name} <{SIOC}account_of> {person} .\n"
        yield f'{person} <{FOAF}name> "Person {user}" .\n'
        yield f"{name} <{SIOC}moderator_of> <{SIB}forum/fo{user}> .\n"
        for tag in sorted(set(network.interests[user].tolist())):
            yield f'{name} <{VOCABULARY}interest> "tag{tag}" .\n'
    for user, friend in network.friends.pairs():
        yield f"<{SIB}user/u{user}> <{FOAF}knows> <{SIB}user/u{friend}> .\n"
    for user, channel in network.follows.pairs():
        yield f"<{SIB}user/u{user}> <{SIOC}subscriber_of> <{SIB}forum/fo{channel}> .\n"
