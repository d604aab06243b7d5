"""A store of every older schema is brought up to date: nothing is lost, and it can be distilled."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from lab import Lab, append, user_line
from sessiond.errors import ConfigError
from sessiond.store import migrations
from sessiond.store.connect import open_writer, rows, value

HERE = Path(__file__).parent
OLDER = sorted(HERE.glob("schema_*.sql"))


def old_store(lab: Lab, dump: Path) -> Path:
    lab.paths.state_dir.mkdir(parents=True, mode=0o700)
    db = apsw.Connection(str(lab.paths.store))
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute(dump.read_text())
    db.close()
    return lab.paths.store


@pytest.mark.fault(59)
def test_there_is_a_stored_database_of_every_older_schema():
    assert [path.stem for path in OLDER] == [f"schema_{number}" for number in range(1, migrations.VERSION)]


@pytest.mark.fault(59)
@pytest.mark.parametrize("dump", OLDER, ids=lambda path: path.stem)
def test_older_store_is_brought_up_to_date_and_distilled(tmp_path, dump):
    lab = Lab(tmp_path)
    store = old_store(lab, dump)

    lab.analyze()

    assert [event.kind.value for event in lab.events("claude:s1")] == [
        "user_msg",
        "tool_call",
        "tool_result",
        "assistant_msg",
        "completion",
    ]
    (snippet,) = lab.digest("claude:s1")["error_snippets"]
    assert "No rule to make target" in snippet["sample"], "of an event without detail the archive still knows the words"
    assert lab.sessions()["claude:s1"].cost.output_tokens == 12
    copy = store.with_name(f"store.db.before-schema-{migrations.VERSION}")
    assert copy.stat().st_mode & 0o777 == 0o600
    with apsw.Connection(str(copy)) as before:
        assert value(before, "PRAGMA user_version") == int(dump.stem.removeprefix("schema_"))


@pytest.mark.fault(59)
def test_migrated_schema_is_the_same_as_a_new_one(tmp_path):
    new = open_writer(tmp_path / "new.db")
    migrations.migrate(new, tmp_path / "new.db")
    query = "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    expected = {name: " ".join((sql or "").split()) for name, sql in rows(new, query)}
    new.close()
    for dump in OLDER:
        lab = Lab(tmp_path / dump.stem)
        old = open_writer(old_store(lab, dump))
        migrations.migrate(old, lab.paths.store)
        assert {name: " ".join((sql or "").split()) for name, sql in rows(old, query)} == expected
        old.close()


@pytest.mark.fault(59)
def test_store_of_a_newer_program_is_refused_untouched(tmp_path):
    lab = Lab(tmp_path)
    append(lab.claude_file(), user_line(0))
    lab.ingest()
    db = apsw.Connection(str(lab.paths.store))
    db.pragma("user_version", migrations.VERSION + 1)
    db.close()
    shutil.copyfile(lab.paths.store, tmp_path / "before")

    with pytest.raises(ConfigError, match="newer sessiond"):
        lab.ingest()

    assert lab.paths.store.read_bytes() == (tmp_path / "before").read_bytes()
