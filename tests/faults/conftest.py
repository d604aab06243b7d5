"""A history is dear to make: once for each module that damages it."""

from __future__ import annotations

import shutil

import pytest

from tests.faults.damaged import History


@pytest.fixture(scope="module")
def history():
    made = History()
    yield made
    shutil.rmtree(made.lab.folder)
