"""How well fingerprints group errors: pairwise precision and recall against tables that people made.

`python tests/passes/grouping.py` prints the figures. Of the golden table it also names the pairs that are wrong; of
the held-out one nothing but the figures, so that no rule can be written for it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from sessiond.passes.fingerprint import fingerprint

HERE = Path(__file__).parent
GOLDEN = HERE / "errors_golden.json"
HELD_OUT = HERE / "errors_heldout.json"


@dataclass(frozen=True)
class Figures:
    precision: float  # of the pairs that share a fingerprint: how many are one error
    recall: float  # of the pairs that are one error: how many share a fingerprint
    texts: int
    groups: int

    def __str__(self) -> str:
        return f"precision {self.precision:.4f}  recall {self.recall:.4f}  ({self.texts} texts, {self.groups} groups)"


def load(path: Path) -> list[dict[str, str]]:
    return json.loads(path.read_text(encoding="utf-8"))


def marks(table: list[dict[str, str]]) -> list[str]:
    """The fingerprint of each text; one that has none is alone."""
    prints = [fingerprint(entry["text"]) for entry in table]
    return [made.id if made else f"none-{n}" for n, made in enumerate(prints)]


def _pairs(keys) -> int:
    return sum(n * (n - 1) // 2 for n in Counter(keys).values())


def measure(table: list[dict[str, str]], found: list[str]) -> Figures:
    groups = [entry["group"] for entry in table]
    both = _pairs(zip(groups, found, strict=True))
    return Figures(
        precision=both / max(1, _pairs(found)),
        recall=both / max(1, _pairs(groups)),
        texts=len(table),
        groups=len(set(groups)),
    )


def offenders(table: list[dict[str, str]], found: list[str]) -> list[str]:
    """Groups that fell apart and groups that ran together, with the normal forms that did it."""
    by_group, by_mark = defaultdict(list), defaultdict(set)
    for entry, mark in zip(table, found, strict=True):
        by_group[entry["group"]].append((mark, fingerprint(entry["text"])))
        by_mark[mark].add(entry["group"])
    told = [
        f"apart     {group}: " + " | ".join(sorted({made.normal if made else "-" for _, made in members}))
        for group, members in by_group.items()
        if any(one[0] != other[0] for one, other in combinations(members, 2))
    ]
    told += [f"together  {', '.join(sorted(groups))}" for groups in by_mark.values() if len(groups) > 1]
    return told


def main() -> int:
    for path in (GOLDEN, HELD_OUT):
        if not path.exists():
            print(f"{path.stem}: not here")
            continue
        table = load(path)
        found = marks(table)
        print(f"{path.stem}: {measure(table, found)}")
        if path == GOLDEN:
            print("".join(f"  {told}\n" for told in offenders(table, found)), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
