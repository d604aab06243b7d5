from __future__ import annotations

import pytest

from lab import append, until, user_line
from sessiond.errors import UsageError
from sessiond.store import find, fts
from sessiond.store.connect import open_reader, open_writer, rows


def hits(lab, query: str) -> list[str]:
    db, index = open_reader(lab.paths.store), open_reader(lab.paths.search)
    try:
        found = find.find(db, index, query, limit=None, accept=lambda _: True, mask=lambda text: text)
        return sorted(hit.event.summary for hit in found)
    finally:
        db.close()
        index.close()


@pytest.fixture
def words(lab):
    lab.claude_file().write_bytes(
        user_line(0, "the frobnicator broke") + user_line(1, "frobnicate again") + user_line(2, "all is well")
    )
    lab.ingest()
    return lab


def test_words_phrases_and_prefixes(words):
    assert hits(words, "frobnicator") == ["the frobnicator broke"]
    assert hits(words, "frob*") == ["frobnicate again", "the frobnicator broke"]
    assert hits(words, '"is well"') == ["all is well"]
    assert hits(words, '"well is"') == []
    assert hits(words, "FROBNICATOR broke") == ["the frobnicator broke"]


@pytest.mark.fault(78)
@pytest.mark.parametrize(
    "query", ['"', "NEAR(", "a AND", "col:x", "-x", "^", "(", '"" ""x', "a\0b", "*", "'; DROP TABLE fts"]
)
def test_no_query_is_a_syntax_error(words, query):
    """Row 78: what people type is words, whatever it looks like."""
    try:
        hits(words, query)
    except UsageError:
        pass  # nothing to search for


def test_replaced_text_is_forgotten(words):
    words.claude_file("later").write_bytes(user_line(5, "frobnicator of another", session="later"))
    words.ingest()
    assert len(hits(words, "frobnicator")) == 2


def test_snippet_shows_the_match(words):
    db, index = open_reader(words.paths.store), open_reader(words.paths.search)
    (hit,) = find.find(db, index, "broke", limit=5, accept=lambda _: True, mask=lambda text: text)
    assert [hit.snippet[start:stop] for start, stop in hit.marks] == ["broke"]
    db.close()
    index.close()


@pytest.mark.parametrize("damage", ["deleted", "garbage", "ahead", "behind", "foreign", "truncated"])
def test_index_that_does_not_fit_is_made_again(words, damage):
    path = words.paths.search
    if damage == "deleted":
        path.unlink()
    elif damage == "garbage":
        path.write_bytes(b"not a database at all" * 500)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        change = {"ahead": "position = 1000000", "behind": "position = 0", "foreign": "store_id = 'x'"}[damage]
        db = open_writer(path)
        db.execute(f"UPDATE _position SET {change}")
        db.close()
    append(words.claude_file(), user_line(9, "frobnicator returns"))
    words.ingest()
    assert hits(words, "frobnicator") == ["frobnicator returns", "the frobnicator broke"]


def test_outbox_is_emptied_once_it_was_taken_in(words):
    with words.store() as db:
        assert rows(db, "SELECT count(*) FROM _outbox") == [(0,)]


def test_index_that_breaks_while_it_runs_mends_itself(words):
    pipeline = words.pipeline()
    pipeline.start()
    try:
        until(lambda: pipeline.loop.last_sweep.at)
        db = open_writer(words.paths.search)
        db.execute("DROP TABLE fts")
        db.close()
        append(words.claude_file(), user_line(9, "frobnicator returns"))
        ticket = pipeline.ask()["ticket"]
        until(lambda: pipeline.asked({"ticket": ticket})["done"])
    finally:
        pipeline.stop()
    assert hits(words, "frobnicator") == ["frobnicator returns", "the frobnicator broke"]


def test_quoting_keeps_operators_apart_from_words():
    assert fts.quoted('fix "a b" wor* x* -y') == '"fix" "a b" "wor"* "x" "-y"'
