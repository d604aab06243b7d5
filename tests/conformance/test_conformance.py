"""sessiond over the real session files, against an independent reading of them (README.md says whose and how)."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from conformance.tally import folder_mark
from conformance_homes import EXPECTED, lay_out
from lab import Lab
from sessiond.store import totals
from sessiond.store.connect import rows

TOKENS = {"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"}
CALLS = ("tool_call", "edit", "test_run", "decision")
FIELDS = (
    "event_total", "results_joined", "tool_result_errors", "turns", "sidechain_events", "retries", "input_tokens",
    "output_tokens", "cache_read_tokens", "cache_write_tokens", "parent_uid", "cwd", "title", "started_at", "ended_at",
    "sources", "rejects",
)  # fmt: skip


def found(lab: Lab) -> dict[str, dict]:
    """What sessiond made of it, in the words of the expectations."""
    result = {}
    with lab.store() as db:
        for uid, session in lab.sessions().items():
            events = lab.events(uid)
            by_seq = {event.seq: event for event in events}
            rejects = rows(
                db,
                "SELECT r.reason, count(*) FROM _reject AS r JOIN _generation AS g ON g.id = r.generation_id"
                " JOIN _source AS f ON f.id = g.source_id JOIN _session AS s ON s.id = f.session_id"
                " WHERE s.uid = ? GROUP BY 1",
                (uid,),
            )
            sources = rows(
                db,
                "SELECT count(*) FROM _source AS f JOIN _session AS s ON s.id = f.session_id"
                " WHERE s.uid = ? AND f.role <> 'sidecar'",
                (uid,),
            )[0][0]
            titles = rows(
                db,
                "SELECT value FROM _fact AS f JOIN _session AS s ON s.id = f.session_id"
                " WHERE s.uid = ? AND name = 'title' AND rank < 9",
                (uid,),
            )
            results = [e for e in events if e.kind in ("tool_result", "human_intervention")]
            joined = [e for e in results if e.parent_seq in by_seq and by_seq[e.parent_seq].kind in CALLS]
            result[uid] = {
                "events": dict(Counter(str(event.kind) for event in events)),
                "event_total": len(events),
                "results_joined": len(joined),
                "tool_result_errors": sum(e.is_error for e in events if e.kind == "tool_result"),
                "turns": session.cost.turns,
                "sidechain_events": sum(e.is_sidechain for e in events),
                "retries": session.cost.retries,
                "input_tokens": session.cost.input_tokens,
                "output_tokens": session.cost.output_tokens,
                "cache_read_tokens": session.cost.cache_read_tokens,
                "cache_write_tokens": session.cost.cache_write_tokens,
                "parent_uid": session.parent_uid,
                "cwd": folder_mark(session.cwd),
                "title": titles[0][0] if titles else None,
                "started_at": session.started_at,
                "ended_at": session.ended_at,
                "sources": sources,
                "rejects": dict(rejects),
            }
    return result


def differences(wanted: dict, got: dict) -> list[str]:
    unsettled = wanted.get("unsettled", {})
    found = []

    def compare(name: str, expected, value) -> None:
        if value == expected:
            return
        also = unsettled.get(name, {"also": ()})["also"]
        if also is None or value in also:
            return
        found.append(f"{name}: expected {expected!r}, found {value!r}")

    for name in FIELDS:
        if name in wanted:
            compare(name, wanted[name], got[name])
    for kind in sorted({*wanted["events"], *got["events"]}):
        compare(f"events.{kind}", wanted["events"].get(kind, 0), got["events"].get(kind, 0))
    return found


@pytest.mark.parametrize("home", EXPECTED)
def test_every_session_is_what_the_files_say(home, lab, fixtures):
    flavor, wanted = EXPECTED[home]
    lay_out(lab, flavor, wanted["files"])

    lab.ingest()

    got = found(lab)
    assert sorted(got) == sorted(wanted["sessions"])
    wrong = {uid: differences(each, got[uid]) for uid, each in wanted["sessions"].items()}
    assert not {uid: each for uid, each in wrong.items() if each}, json.dumps(wrong, indent=1, ensure_ascii=False)


@pytest.mark.parametrize("home", EXPECTED)
def test_the_sum_over_sessions_counts_every_token_once(home, lab, fixtures):
    """Grok states a sub-agent's tokens twice, with the child and with its parent."""
    flavor, wanted = EXPECTED[home]
    lay_out(lab, flavor, wanted["files"])
    if any(TOKENS & each.get("unsettled", {}).keys() for each in wanted["sessions"].values()):
        pytest.skip("what its sessions spent is not settled")

    lab.ingest()

    with lab.store() as db:
        cost = totals.total(db)
    assert {name: getattr(cost, name) for name in TOKENS} == {name: wanted["totals"][name] for name in TOKENS}


@pytest.mark.parametrize("home", [home for home in EXPECTED if "incremental" not in home])
def test_owners_and_totals_do_not_depend_on_the_order_of_files(home, fixtures, tmp_path):
    """P2 over sessions: whichever file comes first, every event has the same owner and every token is counted once."""
    flavor, wanted = EXPECTED[home]
    outcomes = []
    for seed in range(4):
        lab = Lab(tmp_path / str(seed))
        files = list(wanted["files"].items())
        random.Random(seed).shuffle(files)
        for step in range(0, len(files), 1 + len(files) // 6):
            lay_out(lab, flavor, dict(files[step : step + 1 + len(files) // 6]))
            lab.ingest()
        outcomes.append((owners(lab), lab.usage_rows()))
    assert all(outcome == outcomes[0] for outcome in outcomes[1:])


def owners(lab: Lab) -> list[tuple]:
    query = """
    SELECT s.uid, e.kind, e.ts, e.role, e.summary, e.is_error, e.is_turn, p.kind, p.summary, v.parent_uid, s.turns, s.events
      FROM _event AS e JOIN _session AS s ON s.id = e.session_id JOIN sessions AS v ON v.session_uid = s.uid
      LEFT JOIN _event AS p ON p.session_id = e.session_id AND p.seq = e.parent_seq
     ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9
    """
    with lab.store() as db:
        return rows(db, query)
