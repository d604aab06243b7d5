"""Imports point one way, as the architecture draws them; no module names an agent where it must not."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "sessiond"
LEAVES = {
    "model",
    "errors",
    "config",
    "log",
    "mask",
    "paths",
    "units",
    "lock",
    "notify",
    "trouble",
    "memory",
    "work",
    "__init__",
}
# part -> what it may import besides itself and the leaves
ALLOWED = {
    "adapters": set(),
    "store": set(),
    "intake": {"adapters", "store"},
    "passes": {"store"},
    "serve": {"store"},
    "report": {"intake", "store"},
    "upkeep": {"intake", "passes", "store", "adapters"},
    "daemon": {"intake", "passes", "serve", "store", "adapters", "report", "upkeep"},
    "cli": {"daemon", "serve", "store", "adapters", "intake", "passes"},
    "__main__": {"cli"},
    "testing": {"adapters"},
}
# A leaf stands on others only where that is listed.
LEAF_IMPORTS = {
    "config": {"errors", "mask", "paths", "units"},
    "log": {"mask", "paths"},
    "paths": {"errors"},
    "lock": {"errors"},
    "trouble": {"model"},
    "work": {"errors"},
}


def part_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The parts of sessiond that a module imports, at the top or anywhere inside, type checking aside."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and getattr(block.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("sessiond.")}


MODULES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path):
    part = part_of(path)
    allowed = LEAF_IMPORTS.get(part, set()) if part in LEAVES else ALLOWED[part] | LEAVES
    wrong = imported(path) - allowed - {part, "__version__"}
    assert not wrong, f"sessiond/{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


def test_only_the_adapters_name_an_agent():
    """A new agent is one file: the loop, the store and the rest never learn its name."""
    flavors = {path.stem for path in (ROOT / "adapters").glob("[a-z]*.py")} - {"base", "commands", "wording"}
    assert {"claude", "codex"} <= flavors
    for part in ("intake", "store", "passes", "serve"):
        for path in (ROOT / part).rglob("*.py"):
            named = {
                node.value
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in flavors
            }
            assert not named, f"{path} names {named}"


def test_modules_stay_easy_to_read():
    long = {
        str(path.relative_to(ROOT)): count for path in MODULES if (count := len(path.read_text().splitlines())) > 450
    }
    assert not long
