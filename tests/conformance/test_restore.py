"""P3: every real session file comes back byte for byte after its source is gone, and is the same session again."""

from __future__ import annotations

import shutil

import pytest

from conformance_homes import EXPECTED, home_of, lay_out
from lab import Lab
from sessiond.store import restore
from sessiond.store.connect import rows

COUNTED = ("_session", "_event", "_key", "_usage", "_frame", "_generation", "_source", "_reject", "_fact")


def row_counts(lab: Lab) -> dict[str, int]:
    with lab.store() as db:
        return {table: rows(db, f"SELECT count(*) FROM {table}")[0][0] for table in COUNTED}


def files_below(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("home", EXPECTED)
def test_every_fixture_comes_back_byte_for_byte(home, lab, fixtures):
    flavor, wanted = EXPECTED[home]
    lay_out(lab, flavor, wanted["files"])
    agent_home = home_of(lab, flavor)
    lab.ingest()
    before = files_below(agent_home)
    with lab.store() as db:
        taken = {row[0].decode() for row in rows(db, "SELECT below FROM _source WHERE state = 'live'")}

    for folder in agent_home.iterdir():
        shutil.rmtree(folder)
        folder.mkdir()
    lab.ingest()
    to = lab.folder / "restored"
    with lab.store() as db:
        sessions = lab.sessions()
        for uid, session in sessions.items():
            if not (session.is_sidechain and session.parent_uid in sessions):  # that one comes with its parent
                restore.write(db, restore.plan(db, uid), to)

    assert files_below(to) == {below: data for below, data in before.items() if below in taken}
    assert taken  # something was compared

    counted = row_counts(lab)
    shutil.copytree(to, agent_home, dirs_exist_ok=True)
    result = lab.ingest()
    assert (result["lines"], result["events"]) == (0, 0)
    after = row_counts(lab)
    # A tail without its newline was archived when its file went; it waits beside the cursor again.
    assert {name: after[name] for name in COUNTED if name not in ("_frame", "_reject")} == {
        name: counted[name] for name in COUNTED if name not in ("_frame", "_reject")
    }
    assert after["_frame"] <= counted["_frame"]
    assert after["_reject"] <= counted["_reject"]
    assert all(session.source_gone_at is None for session in lab.sessions().values())
