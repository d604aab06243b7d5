"""The script that breaks the rules one by one still fits the code it breaks."""

from __future__ import annotations

import pytest

from tests.faults.mutations import MUTATIONS, PROJECT, Mutation, judge


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.done)
def test_what_is_to_be_broken_is_there_once(mutation: Mutation):
    assert (PROJECT / mutation.file).read_text().count(mutation.old) == 1
    assert all((PROJECT / test).is_file() for test in mutation.tests)


def test_a_rule_that_no_test_keeps_is_found_out(tmp_path):
    (tmp_path / "code_under.py").write_text("ANSWER = 42\n")
    (tmp_path / "test_kept.py").write_text("from code_under import ANSWER\n\ndef test_it():\n    assert ANSWER == 42\n")
    (tmp_path / "test_lax.py").write_text("from code_under import ANSWER\n\ndef test_it():\n    assert ANSWER\n")
    broken = {"rule": "r", "done": "d", "file": "code_under.py", "old": "42", "new": "43"}

    assert judge(tmp_path, Mutation(**broken, tests=("test_kept.py",))) == "test_kept.py::test_it"
    assert judge(tmp_path, Mutation(**broken, tests=("test_lax.py",))) == ""
    assert (tmp_path / "code_under.py").read_text() == "ANSWER = 42\n"
