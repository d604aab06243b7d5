"""The homes of tests/conformance: which fixture lies where, and what an independent reading says is in it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from lab import FIXTURES, Lab

HERE = Path(__file__).parent / "conformance"
EXPECTED = {
    home: (flavor, wanted)
    for flavor in ("claude", "codex")
    for home, wanted in json.loads((HERE / f"expected_{flavor}.json").read_text()).items()
}


def lay_out(lab: Lab, flavor: str, files: dict[str, str]) -> None:
    home = lab.claude if flavor == "claude" else lab.codex
    for fixture, below in files.items():
        target = home / below
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(FIXTURES / fixture, target)
