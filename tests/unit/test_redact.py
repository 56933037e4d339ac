"""Passwords and tokens never reach an error or a log."""

from __future__ import annotations

import logging

import pytest

from cqels.model.errors import CqelsError, Source, Span
from cqels.model.redact import redacted, redacted_url
from cqels.plan.prepare import is_same, prepare
from cqels.spark.sinks import sink_of
from cqels.store.service_answers import public_text, without_secrets

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "text",
    [
        f"http://me:{SECRET}@ex.org/sparql",
        f"https://{SECRET}@ex.org",
        f"<http://ex.org/sparql?x=1&access_token={SECRET}&y=2>",
        f"see http://ex.org/#id_token={SECRET} there",
        f"http://a:b@{SECRET}@ex.org/",
        f"http://ex.org/proxy?to=http://me:{SECRET}@other.org/",
        f"kafka.ssl.key.password={SECRET}",
        f"kafka.sasl.jaas.config=module required username=me password='{SECRET}';",
        f'kafka.sasl.jaas.config = module required username="me" password="{SECRET} x";',
        f"{{'kafka.ssl.truststore.password': '{SECRET}', 'topic': 't'}}",
        f'{{"sasl.oauthbearer.client.secret": "{SECRET}"}}',
        f"API_KEY={SECRET}",
        f"fs.s3a.access.key={SECRET} fs.s3a.secret.key={SECRET}",
        f"Authorization: Basic {SECRET}",
        f"kafka:me:{SECRET}@host:9092/topic",
    ],
)
def test_secrets_are_hidden(text: str) -> None:
    shown = redacted(text)
    assert SECRET not in shown
    assert redacted(shown) == shown
    aligned = redacted(text, aligned=True)
    assert SECRET not in aligned
    assert len(aligned) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?token WHERE { ?token :is ?password FILTER(?token=5 && ?secret = 6) }",
        "http://ex.org/a?x=1&y=2#part",
        "the query has a token: that is not a secret",
        "10:20:30 me@ex.org says x = 1",
        "mailto:me@ex.org",
    ],
)
def test_the_rest_stays(text: str) -> None:
    assert redacted(text) == text


def test_the_same_endpoint_whoever_asks() -> None:
    ours, theirs = (redacted_url(f"https://{who}:{who}@ex.org/q?token={who}") for who in ("me", "you"))
    assert ours == theirs == "https://…@ex.org/q?token=…"


def test_errors_and_logs_have_none(caplog: pytest.LogCaptureFixture) -> None:
    line = f"SELECT * {{ SERVICE <http://me:{SECRET}@ex.org/> {{ ?s ?p ?o }} }} !"
    error = CqelsError(
        f"asking http://me:{SECRET}@ex.org failed",
        span=Span(line.index("!"), len(line)),
        source=Source(line),
        hint=f"password={SECRET}",
    )
    place, marker = str(error).splitlines()[2:4]
    assert marker.index("^") == place.index("!")
    with pytest.raises(CqelsError) as caught:
        sink_of(f"kafka:me:{SECRET}@host:9092")
    logging.getLogger("cqels").warning("asked %s", f"http://me:{SECRET}@ex.org")
    assert SECRET not in f"{error} {error!r} {error.hint} {caught.value} {caplog.text}"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT * { SERVICE <http://me:%s@ex.org/q?token=%s> { ?s ?p ?o } }", "SERVICE <http://…@ex.org/q?token=…>"),
        ("PREFIX e: <http://me:%s@ex.org/> SELECT * { SERVICE e:q { ?s ?p ?o } } # %s", None),
        ("SELECT * { SERVICE <http://ex.org/q> { ?s ?p ?o } } # %.0s%.0s", "SERVICE <http://ex.org/q>"),
    ],
)
def test_a_text_that_is_kept_has_none(text: str, kept: str | None) -> None:
    query = prepare(text % (SECRET, SECRET))
    public = public_text(query)
    if kept is None:
        assert public is None
    else:
        assert public is not None
        assert kept in public.text
        assert is_same(public, without_secrets(query))
