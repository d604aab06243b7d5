"""One thread writes; what fails stays out whole, and takes nothing else with it."""

from __future__ import annotations

import threading

import apsw
import pytest

from lab import user_line
from sessiond.errors import ConfigError
from sessiond.model import Checkpoint, Chunk
from sessiond.store import connect, migrations, sources
from sessiond.store.commit import Batch
from sessiond.store.connect import rows
from sessiond.store.sources import Source
from sessiond.store.writer import Writer


def batch(source: Source, start: int, stop: int, **fields) -> Batch:
    chunk = Chunk(start, b"", [], Checkpoint(offset=stop), size=stop, mtime_ns=0)
    return Batch(source, chunk, [], [], {}, [(start, stop, "zeros", b"")], **fields)


def source(name: str = "a") -> Source:
    return Source(
        flavor="claude", home="/h", path=f"/h/projects/{name}", below=f"projects/{name}", session_id=name, member=name
    )


@pytest.fixture
def written(tmp_path):
    failed: list[tuple[str, Exception]] = []
    writer = Writer(tmp_path / "store.db", on_failure=lambda each, error: failed.append((each.source.path, error)))
    writer.failed = failed
    writer.start()
    yield writer
    writer.stop()


def test_chunk_that_does_not_follow_the_last_is_refused_whole(written, tmp_path):
    """A gap would be a loss, an overlap a double: neither can be stored, whatever goes wrong above."""
    a = source()
    written.submit(batch(a, 0, 10))
    written.submit(batch(a, 20, 30))
    written.submit(batch(a, 5, 15))
    written.drain()
    assert [type(error).__name__ for _, error in written.failed] == ["Gap", "Gap"]
    with connect.reading(tmp_path / "store.db") as db:
        assert rows(db, "SELECT start, stop FROM _frame") == [(0, 10)]
        assert rows(db, "SELECT read_offset FROM _source") == [(10,)]
    with connect.reading(tmp_path / "store.db") as db:
        again = sources.by_path(db, a.path)
    written.submit(batch(again, 10, 12))
    written.drain()
    assert len(written.failed) == 2


def test_one_bad_batch_leaves_the_others_of_its_transaction(written, tmp_path):
    hold = threading.Event()
    waiting = threading.Thread(target=lambda: written.call(lambda _: hold.wait(10)))
    waiting.start()  # while the writer is busy, the rest queues up for one transaction
    good, bad, other = source("good"), source("bad"), source("other")
    written.submit(batch(good, 0, 5))
    written.submit(batch(bad, 7, 9))
    written.submit(batch(other, 0, 6))
    hold.set()
    waiting.join()
    written.drain()
    assert [path for path, _ in written.failed] == ["/h/projects/bad"]
    with connect.reading(tmp_path / "store.db") as db:
        assert rows(db, "SELECT read_offset FROM _source ORDER BY path") == [(5,), (6,)]
    assert bad.id is None
    assert good.id is not None


def test_call_that_raises_leaves_nothing_and_tells_its_caller(written, tmp_path):
    def half(db: apsw.Connection) -> None:
        db.execute("INSERT INTO _meta VALUES ('half', 'done')")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        written.call(half)
    with connect.reading(tmp_path / "store.db") as db:
        assert rows(db, "SELECT * FROM _meta WHERE name = 'half'") == []


def test_readers_cannot_write(written, tmp_path):
    db = connect.open_reader(tmp_path / "store.db")
    with pytest.raises(apsw.ReadOnlyError):
        db.execute("DELETE FROM _meta")
    db.close()


@pytest.mark.fault(59)
def test_store_of_a_newer_program_is_refused_untouched(tmp_path):
    """Row 59."""
    path = tmp_path / "store.db"
    Writer(path).stop()
    db = connect.open_writer(path)
    db.pragma("user_version", migrations.VERSION + 1)
    db.close()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="newer"):
        Writer(path)
    assert path.read_bytes() == before


@pytest.mark.fault(59)
def test_older_store_is_copied_before_it_is_changed(tmp_path, monkeypatch):
    path = tmp_path / "store.db"
    Writer(path).stop()
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, "CREATE TABLE _new (x INTEGER) STRICT;"))
    monkeypatch.setattr(migrations, "VERSION", migrations.VERSION + 1)
    Writer(path).stop()
    with connect.reading(path) as db:
        assert rows(db, "SELECT count(*) FROM _new") == [(0,)]
        assert migrations.version(db) == migrations.VERSION
    copy = tmp_path / f"store.db.before-schema-{migrations.VERSION}"
    with connect.reading(copy) as db:
        assert migrations.version(db) == migrations.VERSION - 1
    assert copy.stat().st_mode & 0o077 == 0


@pytest.mark.fault(59)
def test_migration_that_fails_leaves_the_store_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "store.db"
    Writer(path).stop()
    monkeypatch.setattr(
        migrations, "STEPS", (*migrations.STEPS, "CREATE TABLE _new (x INTEGER) STRICT; SELECT nonsense;")
    )
    monkeypatch.setattr(migrations, "VERSION", migrations.VERSION + 1)
    with pytest.raises(apsw.SQLError):
        Writer(path)
    with connect.reading(path) as db:
        assert migrations.version(db) == migrations.VERSION - 1
        assert rows(db, "SELECT name FROM sqlite_schema WHERE name = '_new'") == []


def test_only_one_connection_may_write(lab):
    """Row 58: the WAL-reset bug needs two."""
    lab.claude_file().write_bytes(user_line(0))
    opened = []
    original = connect.open_writer

    def counted(path, **settings):
        opened.append(path.name)
        return original(path, **settings)

    connect.open_writer = counted
    try:
        lab.ingest()
    finally:
        connect.open_writer = original
    assert opened.count("store.db") == 1


def test_revisions_say_what_changed(lab):
    from sessiond.store import reader

    lab.claude_file("a").write_bytes(user_line(0, session="a"))
    lab.claude_file("b").write_bytes(user_line(0, session="b"))
    lab.ingest()
    with lab.store() as db:
        first = reader.changes(db, 0, 10)
        newest = max(revision for _, revision in first)
        assert sorted(uid for uid, _ in first) == ["claude:a", "claude:b"]
        assert reader.changes(db, newest, 10) == []
    lab.claude_file("b").open("ab").close()
    with lab.claude_file("b").open("ab") as file:
        file.write(user_line(1, session="b"))
    lab.ingest()
    with lab.store() as db:
        assert [uid for uid, _ in reader.changes(db, newest, 10)] == ["claude:b"]
        changed = reader.sessions(db, reader.Wanted(changed_since=newest))
        assert [session.session_uid for session in changed] == ["claude:b"]


def test_public_views_answer_a_plain_sqlite(lab):
    import sqlite3

    lab.claude_file().write_bytes(user_line(0, "hello"))
    lab.ingest()
    db = sqlite3.connect(f"file:{lab.paths.store}?mode=ro", uri=True)
    assert db.execute("SELECT session_uid, events FROM sessions").fetchall() == [("claude:s1", 1)]
    assert db.execute("SELECT seq, kind, summary, is_superseded FROM events").fetchall() == [
        (1, "user_msg", "hello", 0)
    ]
    for view in ("usage", "errors", "files"):
        assert db.execute(f"SELECT * FROM {view}").fetchall() == []
    db.close()
