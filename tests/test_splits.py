"""P2: however the bytes arrive and wherever sessiond was restarted in between, the rows are those of one whole read."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from lab import Lab, append, until, user_line

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


def rows_after(writes: list[bytes], flavor: str, mode: str | None = None) -> tuple:
    """What is stored when the file grows by these pieces. Without a mode each is read by a process of its own, with
    one all are read by the same, as they come."""
    lab = Lab(Path(tempfile.mkdtemp(prefix="sd")))
    try:
        if flavor == "claude":
            path = lab.claude_file()
        else:
            path = lab.codex_file("rollout-2026-01-02T03-04-05-0190aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee")
        with following(lab, mode) as read_all:
            for piece in writes:
                append(path, piece)
                os.utime(path, ns=(MTIME, MTIME))  # flat codex records have no time but the file's
                read_all()
        sessions = {
            uid: (s.events, s.cost, s.title, s.cwd, s.git_branch, s.model, s.started_at, s.ended_at, s.parent_uid)
            for uid, s in lab.sessions().items()
        }
        seqs = {uid: [(e.seq, e.kind, e.parent_seq, e.tokens) for e in lab.events(uid)] for uid in sessions}
        return lab.event_rows(), lab.usage_rows(), lab.rejects(), sessions, seqs, lab.archived(path)
    finally:
        shutil.rmtree(lab.folder)


@contextmanager
def following(lab: Lab, mode: str | None):
    if mode is None:
        yield lab.ingest
        return
    pipeline = lab.pipeline(mode)
    pipeline.start()

    def read_all() -> None:
        ticket = pipeline.ask()["ticket"]
        until(lambda: pipeline.asked({"ticket": ticket})["done"])

    try:
        yield read_all
    finally:
        pipeline.stop()


def check(data: bytes, cuts: list[int], flavor: str, mode: str | None = None) -> None:
    cuts = sorted({min(cut, len(data)) for cut in cuts})
    pieces = [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    whole = rows_after([data], flavor)
    assert rows_after(pieces, flavor, mode) == whole
    assert whole[-1] == data[: len(whole[-1])]


quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.fault(3)
@quick
@given(contents("claude"), st.lists(st.integers(0, 30_000), max_size=4))
@example(user_line(0) + user_line(1), [3, 300])
@example(b"\0" + user_line(0), [1])
@example(b"\0\0\0\0", [])
@example(b'{"type":"summary"}\n{"type":"progress","cwd":"/w","uuid":"p1"}\n', [19])
def test_claude_file_in_any_pieces(data, cuts):
    check(data, cuts, "claude")


@pytest.mark.fault(3)
@quick
@given(contents("codex"), st.lists(st.integers(0, 30_000), max_size=4))
def test_codex_file_in_any_pieces(data, cuts):
    check(data, cuts, "codex")


@pytest.mark.parametrize("mode", ["native", "poll"])
@pytest.mark.parametrize("flavor", ["claude", "codex"])
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_file_in_any_pieces_while_it_is_followed(flavor, mode, data):
    """The same without a restart: what is remembered between two reads must be what the store would say."""
    content = data.draw(contents(flavor))
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=2))
    check(content, cuts, flavor, mode)


@pytest.mark.parametrize("flavor", ["claude", "codex"])
def test_every_sample_in_two_pieces_while_it_is_followed(flavor):
    content = b"".join(sample_lines(flavor))
    check(content, [len(content) // 3, len(content) // 2], flavor, "native")
