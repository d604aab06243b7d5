"""P2: however the bytes arrive and wherever sessiond was restarted in between, the rows are those of one whole read."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings, strategies as st

from lab import Lab, append, user_line

MTIME = 1_790_000_000_000_000_000
SAMPLES = Path(__file__).parent / "adapters" / "samples"


def sample_lines(flavor: str) -> list[bytes]:
    files = sorted(path for path in (SAMPLES / flavor).rglob("*.jsonl") if "subagents" not in path.parts)
    return [line + b"\n" for path in files for line in path.read_bytes().split(b"\n") if line]


JUNK = [
    b"\n",
    b"  \r\n",
    b"{broken\n",
    b"[1, 2]\n",
    b'{"type": "user", "message": "\xff\xfe"}\n',
    b"\0\0\0\0",
    b'{"type": "never-seen", "uuid": "x1"}\n',
    b"no newline at the end",
    user_line(7, "re-flushed"),
    user_line(7, "re-flushed"),
]


def contents(flavor: str):
    return st.lists(st.sampled_from(sample_lines(flavor) + JUNK), max_size=25).map(b"".join)


def rows_after(writes: list[bytes], flavor: str) -> tuple:
    """What is stored when the file grows by these pieces, with a sweep by a new process after each."""
    lab = Lab(Path(tempfile.mkdtemp(prefix="sd")))
    try:
        if flavor == "claude":
            path = lab.claude_file()
        else:
            path = lab.codex_file("rollout-2026-01-02T03-04-05-0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee")
        for piece in writes:
            append(path, piece)
            os.utime(path, ns=(MTIME, MTIME))  # flat codex records have no time but the file's
            lab.ingest()
        sessions = {
            uid: (s.events, s.cost, s.title, s.cwd, s.git_branch, s.model, s.started_at, s.ended_at, s.parent_uid)
            for uid, s in lab.sessions().items()
        }
        seqs = {uid: [(e.seq, e.kind, e.parent_seq, e.tokens) for e in lab.events(uid)] for uid in sessions}
        return lab.event_rows(), lab.usage_rows(), lab.rejects(), sessions, seqs, lab.archived(path)
    finally:
        shutil.rmtree(lab.folder)


def check(data: bytes, cuts: list[int], flavor: str) -> None:
    cuts = sorted({min(cut, len(data)) for cut in cuts})
    pieces = [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    whole = rows_after([data], flavor)
    assert rows_after(pieces, flavor) == whole
    assert whole[-1] == data[: len(whole[-1])]


quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(contents("claude"), st.lists(st.integers(0, 30_000), max_size=4))
@example(user_line(0) + user_line(1), [3, 300])
@example(b"\0" + user_line(0), [1])
def test_claude_file_in_any_pieces(data, cuts):
    check(data, cuts, "claude")


@quick
@given(contents("codex"), st.lists(st.integers(0, 30_000), max_size=4))
def test_codex_file_in_any_pieces(data, cuts):
    check(data, cuts, "codex")
