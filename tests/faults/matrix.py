"""Which test keeps which row of docs/reliability.md true: read off the markers, written into the table's last column.

python tests/faults/matrix.py            the table for a terminal; exit 1 if a row has neither test nor reason
python tests/faults/matrix.py --write    brings the document up to date
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
DOCUMENT = TESTS.parent / "docs" / "reliability.md"
ROWS = range(1, 84)
NOT_HERE = "not tested: "  # and why


@dataclass(slots=True)
class Row:
    number: int
    fault: str
    answer: str
    proof: str
    tests: list[str] = field(default_factory=list)

    @property
    def is_kept(self) -> bool:
        return bool(self.tests) or self.proof.startswith(NOT_HERE)

    def written(self) -> str:
        proof = "<br>".join(self.tests) if self.tests else self.proof
        return f"| {self.number} | {self.fault} | {self.answer} | {proof} |"


def marked_tests() -> dict[int, list[str]]:
    """Row -> the tests that carry its number, in the order of their files."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                marks = [mark for mark in map(_mark, node.decorator_list) if mark is not None]
                is_long = ("long", None) in marks
                name = f"`{path.relative_to(TESTS)}::{node.name}`" + (" (long)" if is_long else "")
                for kind, number in marks:
                    if kind == "fault" and number is not None:
                        found.setdefault(number, []).append(name)
    return found


def _mark(node: ast.expr) -> tuple[str, int | None] | None:
    call = node.func if isinstance(node, ast.Call) else node
    if not (isinstance(call, ast.Attribute) and ast.unparse(call.value) == "pytest.mark"):
        return None
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return call.attr, given.value if isinstance(given, ast.Constant) and isinstance(given.value, int) else None


def documented_rows(text: str) -> list[Row]:
    tests = marked_tests()
    found = re.findall(r"^\| (\d+) \| (.*?) \| (.*?) \|(.*?)\|$", text, flags=re.MULTILINE)
    return [Row(int(number), *map(str.strip, cells), tests=tests.get(int(number), [])) for number, *cells in found]


def up_to_date(text: str) -> str:
    """The document with the tests of today in its table."""
    for row in documented_rows(text):
        text = re.sub(rf"^\| {row.number} \| .*$", lambda _, row=row: row.written(), text, flags=re.MULTILINE)
    return text


def main() -> int:
    if "--write" in sys.argv:
        DOCUMENT.write_text(up_to_date(DOCUMENT.read_text()))
    rows = documented_rows(DOCUMENT.read_text())
    for row in rows:
        told = ", ".join(test.strip("`").split("::")[-1].replace("`", "") for test in row.tests) or row.proof
        print(f"{row.number:>3}  {'ok ' if row.is_kept else '???'}  {row.fault[:44]:<44}  {told}")
    missing = sorted(set(ROWS) - {row.number for row in rows if row.is_kept})
    print(f"\n{len(rows)} rows, {len(missing)} without a test or a reason: {missing or 'none'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
