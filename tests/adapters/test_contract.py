"""The contract that every adapter keeps (`sessiond.testing` has it, for plug-ins too), over the built-in ones."""

from __future__ import annotations

import pytest

from sessiond.adapters import adapters
from sessiond.testing import check_files, contract
from tests.adapters.harness import SAMPLES, SHARED_FIXTURES

CHECKS = [check for flavor, adapter in adapters().items() for check in contract(adapter, SAMPLES / flavor)]


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_the_contract(check):
    check()


@pytest.mark.parametrize("flavor", sorted(adapters()))
@pytest.mark.parametrize("tree", ["", "real"])
def test_real_files_are_read_without_a_fault(flavor, tree):
    root = SHARED_FIXTURES / tree / flavor
    if not root.is_dir():
        pytest.skip(f"no fixtures at ../shared/fixtures/{tree}")
    read = check_files(adapters()[flavor], root)
    assert read or tree != "real"  # not all of the others lie as in a home
