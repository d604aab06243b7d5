"""Where the samples of the built-in adapters and the shared fixtures lie; the rest is `sessiond.testing`.

Samples lie in `samples/<flavor>/<path below the agent's home>`; docs/adapters.md says what may stand beside them.
"""

from __future__ import annotations

from pathlib import Path

from sessiond.testing import (
    EXPECTED,
    Reading,
    Sample,
    complete_lines,
    differences,
    faults_in,
    faults_of,
    head_of,
    read,
    samples_of,
    saved,
)

SAMPLES = Path(__file__).parent / "samples"
SHARED_FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"

__all__ = [
    "EXPECTED",
    "SAMPLES",
    "SHARED_FIXTURES",
    "Reading",
    "Sample",
    "complete_lines",
    "differences",
    "faults_in",
    "faults_of",
    "head_of",
    "read",
    "samples_of",
    "saved",
]
