"""`pin` and `unpin`: what a person wants to keep is never evicted; the change is told, and only what changed."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from lab import user_line
from sessiond.config import load as configuration
from sessiond.errors import SessiondError
from sessiond.store import evict
from sessiond.store.connect import value
from sessiond.upkeep import Upkeep

A, B = "aaaa1111", "bbbb2222"


@contextmanager
def working(lab):
    pipeline = lab.pipeline()
    pipeline.start_store()
    try:
        config = configuration.load(None, lab.env, {"claude"}, system_dir=lab.folder / "etc").config
        yield pipeline, Upkeep(lambda: config, lab.paths, pipeline, lab.troubles)
    finally:
        pipeline.stop()


@pytest.fixture
def two(lab):
    for name, cwd in ((A, "/srv/one"), (B, "/srv/two")):
        lab.claude_file(name).write_bytes(user_line(0, session=name, cwd=cwd))
    lab.ingest()
    return lab


def let_go(lab, uid: str) -> bool:
    """Whether it may be evicted, by the one guard there is; then it is."""
    with working(lab) as (pipeline, upkeep):
        upkeep.do("analyze", {})
        with lab.store() as db:
            row = value(db, "SELECT id FROM _session WHERE uid = ?", (uid,))
        return evict.let_go(pipeline.writer, row, datetime.now(UTC), active_before="~")


def test_a_pinned_session_is_not_evicted_until_it_is_unpinned(two):
    assert two.cli("pin", A).returncode == 0
    assert not let_go(two, f"claude:{A}")
    assert let_go(two, f"claude:{B}")

    assert two.cli("unpin", A).returncode == 0
    assert let_go(two, f"claude:{A}")


def test_it_says_what_changed_and_raises_the_revision(two):
    before = two.sessions()[f"claude:{A}"].revision

    first = two.cli("pin", A[:4], B[:4])
    again = two.cli("pin", A, "--json")

    assert first.stdout.splitlines() == [f"pinned claude:{A}", f"pinned claude:{B}"]
    assert json.loads(again.stdout)["changed"] == []
    assert json.loads(again.stdout)["unchanged"] == [f"claude:{A}"]
    assert two.sessions()[f"claude:{A}"].pinned
    assert two.sessions()[f"claude:{A}"].revision > before


def test_pinning_twice_is_no_change(two):
    two.cli("pin", A)
    revision = two.sessions()[f"claude:{A}"].revision

    said = two.cli("pin", A)

    assert said.stdout == f"claude:{A} was pinned already\n"
    assert two.sessions()[f"claude:{A}"].revision == revision


def test_options_name_sessions_too(two):
    said = two.cli("pin", "--repo", "two", "--json")

    assert json.loads(said.stdout)["changed"] == [f"claude:{B}"]


@pytest.mark.parametrize("words", [(), (A, "--repo", "two")])
def test_without_a_name_or_with_two_kinds_of_names_it_refuses(two, words):
    assert two.cli("pin", *words).returncode == 2
    assert not any(each.pinned for each in two.sessions().values())


def test_an_unknown_session_changes_none(two):
    with working(two) as (_, upkeep), pytest.raises(SessiondError, match="there is no session"):
        upkeep.do("pin", {"uids": [f"claude:{A}", "claude:nobody"]})

    assert not two.sessions()[f"claude:{A}"].pinned
    assert two.cli("pin", "nobody").returncode == 1


def test_sub_agents_are_kept_with_their_session(two):
    with working(two) as (pipeline, upkeep):
        pipeline.writer.call(
            lambda db: db.execute("UPDATE _session SET is_sidechain = 1, parent = ? WHERE uid = ?",
                                  (f"claude:{A}", f"claude:{B}")).fetchall()
        )  # fmt: skip
        report = upkeep.do("pin", {"uids": [f"claude:{A}"]})

    assert report["changed"] == [f"claude:{A}", f"claude:{B}"]
    assert two.sessions()[f"claude:{B}"].pinned


def test_through_the_daemon_and_what_was_evicted_before_is_said(two):
    assert let_go(two, f"claude:{A}")
    with two.daemon():
        said = two.cli("pin", A)

    assert said.returncode == 0
    assert "evicted already" in said.stderr
    assert two.sessions()[f"claude:{A}"].pinned
