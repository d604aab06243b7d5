"""Write the expected_*.json from the raw fixture files.

Run it from anywhere: `python tests/conformance/derive.py` (`--check` writes nothing and exits 1 on a difference).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import derive_claude
import derive_codex
import derive_gemini
import derive_grok
import derive_hive
import derive_pi
import derive_qwen
from tally import totals
from unsettled import unsettled

HERE = Path(__file__).resolve().parent
FIXTURES = HERE.parents[2] / "shared" / "fixtures"


def below(folder: str, *, without: str | None = None) -> list[str]:
    paths = (p for p in (FIXTURES / folder).rglob("*") if p.is_file() and p.suffix in {".jsonl", ".json"})
    names = sorted(p.relative_to(FIXTURES).as_posix() for p in paths)
    return [name for name in names if without is None or without not in name]


def claude_homes() -> dict[str, dict[str, str]]:
    """home -> {fixture file: where it lies in that home}."""
    return {name: {path: path.removeprefix(name + "/") for path in below(name)} for name in ("claude", "real/claude")}


def codex_homes() -> dict[str, dict[str, str]]:
    homes = {}
    for family, other in (("archived-fork", "live-fork-"), ("live-fork", "archived-fork-")):
        paths = [path for path in below("codex", without=other) if "/incremental/" not in path]
        homes[f"codex with {family}"] = {path: path.removeprefix("codex/") for path in paths}
    homes["real/codex"] = {path: path.removeprefix("real/codex/") for path in below("real/codex")}
    for path in below("codex/incremental"):
        homes[path.removesuffix(".jsonl")] = {path: "sessions/" + Path(path).name}
    return homes


def hive_homes() -> dict[str, dict[str, str]]:
    """The tree, and each version of the one state.json that is rewritten, as if only that one had been seen."""
    homes = {"hive": {path: path.removeprefix("hive/.hive/") for path in below("hive/.hive")}}
    for path in below("hive/state-sequence"):
        native = json.loads((FIXTURES / path).read_bytes())["session_id"]
        homes[path.removesuffix(".state.json")] = {path: f"agents/digest/sessions/{native}/state.json"}
    return homes


def grok_homes() -> dict[str, dict[str, str]]:
    homes = {}
    for name in ("grok/.grok", "real/grok"):
        marks = sorted(p.relative_to(FIXTURES).as_posix() for p in (FIXTURES / name).rglob(".cwd"))
        homes[name] = {path: path.removeprefix(name + "/") for path in [*below(name), *marks]}
    goldens = "grok/agentsview-goldens"  # two homes of which only the insides of `sessions` are there
    homes[goldens] = {path: "sessions/" + "/".join(Path(path).parts[3:]) for path in below(goldens)}
    return homes


def real_home(client: str) -> dict[str, dict[str, str]]:
    name = f"real/{client}"
    return {name: {path: path.removeprefix(name + "/") for path in below(name)}}


def expected(flavor: Any, homes: dict[str, dict[str, str]]) -> dict[str, Any]:
    result = {}
    for name, files in homes.items():
        found = flavor.sessions(FIXTURES, name, list(files))
        reports = {uid: session.report() for uid, session in found.items()}
        for uid, report in reports.items():
            report["unsettled"] = unsettled(uid, report)
        result[name] = {"files": files, "sessions": reports, "totals": totals(reports)}
        if flavor is derive_grok:
            result[name]["totals"] |= derive_grok.totals_once(reports)
    return result


def main() -> int:
    wanted = {
        "expected_claude.json": expected(derive_claude, claude_homes()),
        "expected_codex.json": expected(derive_codex, codex_homes()),
        "expected_hive.json": expected(derive_hive, hive_homes()),
        "expected_grok.json": expected(derive_grok, grok_homes()),
        "expected_gemini.json": expected(derive_gemini, real_home("gemini")),
        "expected_pi.json": expected(derive_pi, real_home("pi")),
        "expected_qwen.json": expected(derive_qwen, real_home("qwen")),
    }
    differs = False
    for name, value in wanted.items():
        text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        path = HERE / name
        if not path.exists() or path.read_text() != text:
            differs = True
            if "--check" not in sys.argv:
                path.write_text(text)
                print("written:", name)
    return 1 if differs and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
