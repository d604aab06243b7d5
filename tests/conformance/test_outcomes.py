"""How every fixture ended, against an independent reading (derive_outcomes.py; README.md says how it was made)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from conformance_homes import EXPECTED as HOMES, lay_out
from lab import FIXTURES, Lab
from sessiond.passes.analyze import Analyzer, Pace
from tests.conformance import test_mycode_skill

EXPECTED = json.loads((Path(__file__).parent / "expected_outcomes.json").read_text())
CASES = [
    *((home, flavor, wanted, lay_out) for home, (flavor, wanted) in HOMES.items()),
    *(
        (home, flavor, wanted, test_mycode_skill.lay_out)
        for home, (flavor, wanted) in test_mycode_skill.EXPECTED.items()
    ),
]
# Long after: whatever was going to be said has been said.
LATER = timedelta(days=4000)


def analyze_later(lab: Lab) -> None:
    pace = Pace(timedelta(0), timedelta(0), timedelta(minutes=30))
    with lab.upkeep() as upkeep:
        Analyzer(lab.paths.store, upkeep._pipeline.writer, mask=str).run(pace, datetime.now(UTC) + LATER)


def is_as_expected(outcome: str, basis: str | None, expected: dict) -> bool:
    if outcome in expected.get("also", ()):
        return True
    return outcome == expected["outcome"] and basis in (expected["basis"], *expected.get("also_basis", ()))


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="../shared/fixtures is not here")
@pytest.mark.parametrize(("home", "flavor", "wanted", "lay"), CASES, ids=[f"{case[1]}-{case[0]}" for case in CASES])
def test_outcome_is_what_its_page_and_the_design_give(tmp_path, home, flavor, wanted, lay):
    lab = Lab(tmp_path)
    lay(lab, flavor, wanted["files"])
    lab.ingest()
    analyze_later(lab)

    wrong = []
    for uid, session in lab.sessions().items():
        expected = EXPECTED.get(f"{uid}@{home}") or EXPECTED[uid]
        if not is_as_expected(session.outcome.value, session.outcome_basis, expected):
            wrong.append(
                f"{uid}: {session.outcome.value} by {session.outcome_basis} ({session.outcome_reason});"
                f" expected {expected['outcome']} by {expected['basis']} ({expected['reason']})"
            )
    assert not wrong, "\n".join(wrong)
