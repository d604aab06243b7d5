"""Every row of the fault matrix has a test or a written reason, and the document says which."""

from __future__ import annotations

import pytest

from tests.faults import matrix


def test_every_row_stands_in_the_document_once_with_its_test_or_its_reason():
    rows = matrix.documented_rows(matrix.DOCUMENT.read_text())

    assert [row.number for row in rows] == list(matrix.ROWS)
    assert [row.number for row in rows if not row.is_kept] == []


def test_no_test_carries_a_number_that_is_no_row():
    assert set(matrix.marked_tests()) <= set(matrix.ROWS)


def test_the_document_names_the_tests_of_today():
    text = matrix.DOCUMENT.read_text()

    assert matrix.up_to_date(text) == text, "bring it up to date: python tests/faults/matrix.py --write"


@pytest.mark.parametrize("decorator", ["@pytest.mark.fault(7)", "@pytest.mark.fault(7)\n@pytest.mark.long"])
def test_a_marker_is_found_wherever_it_stands(tmp_path, monkeypatch, decorator):
    lines = (*decorator.split("\n"), "def test_it(self): ...")
    (tmp_path / "test_x.py").write_text("class TestIt:\n" + "".join(f"    {line}\n" for line in lines))
    monkeypatch.setattr(matrix, "TESTS", tmp_path)

    assert [name.split("`")[1] for name in matrix.marked_tests()[7]] == ["test_x.py::test_it"]
