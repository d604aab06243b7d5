"""The homes of tests/conformance: which fixture lies where, and what an independent reading says is in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lab import FIXTURES, Lab

HERE = Path(__file__).parent / "conformance"
# Those whose titles and roots want more care (test_mycode_skill.py), and those of how sessions end (test_outcomes.py).
OWN_TESTS = ("expected_mycode", "expected_skill", "expected_outcomes")
EXPECTED = {
    home: (file.stem.removeprefix("expected_"), wanted)
    for file in sorted(HERE.glob("expected_*.json"))
    if file.stem not in OWN_TESTS
    for home, wanted in json.loads(file.read_text()).items()
}


def home_of(lab: Lab, flavor: str) -> Path:
    return lab.user_home / f".{flavor}"


def lay_out(lab: Lab, flavor: str, files: dict[str, str]) -> None:
    home = home_of(lab, flavor)
    for fixture, below in files.items():
        target = home / below
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(FIXTURES / fixture, target)
