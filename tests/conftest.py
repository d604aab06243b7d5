from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# On CI a change is judged by the same examples every time; everywhere else new ones are looked for.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

sys.path.insert(0, str(Path(__file__).parent))

from lab import FIXTURES, Lab  # noqa: E402 - found by the path above


@pytest.fixture
def lab():
    """A short path: the socket's must stay under 100 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="sd"))
    yield Lab(folder)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def fixtures() -> Path:
    if not FIXTURES.is_dir():
        pytest.skip("../shared/fixtures is not here: the conformance checks over real session files are left out")
    return FIXTURES
