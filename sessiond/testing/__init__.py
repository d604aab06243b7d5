"""For the tests of an adapter, built in or in a package of its own: its samples, and the contract they must keep.

    import pytest
    from sessiond.testing import contract

    @pytest.mark.parametrize("check", contract(ADAPTER, Path(__file__).parent / "samples"), ids=str)
    def test_the_contract(check):
        check()

`check_adapter(ADAPTER, samples)` does the same in one call, under any test runner; nothing here needs pytest.
docs/adapters.md says how samples are laid out.
"""

from __future__ import annotations

from sessiond.testing.contract import Check, check_adapter, check_files, contract
from sessiond.testing.faults import differences, faults_in, faults_of
from sessiond.testing.samples import EXPECTED, Reading, Sample, complete_lines, head_of, read, samples_of, saved

__all__ = [
    "EXPECTED",
    "Check",
    "Reading",
    "Sample",
    "check_adapter",
    "check_files",
    "complete_lines",
    "contract",
    "differences",
    "faults_in",
    "faults_of",
    "head_of",
    "read",
    "samples_of",
    "saved",
]
