"""Break the core rules one at a time, in a copy of the code, and see a test fail for each: `make mutations`.

A rule that can be broken without a test noticing is kept by luck. Each mutation replaces one piece of text that occurs
exactly once (test_mutations.py keeps that true) and names the tests that should notice.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Mutation:
    rule: str
    done: str  # what is broken, in words
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "one transaction",
        "bytes and events are committed before the cursor",
        "sessiond/store/commit.py",
        "    write_outbox(db, tally)\n    sources.advance(db, source, batch.chunk, batch.carry)\n",
        '    write_outbox(db, tally)\n    db.execute("COMMIT")\n    db.execute("BEGIN IMMEDIATE")\n'
        "    sources.advance(db, source, batch.chunk, batch.carry)\n",
        ("tests/faults/test_kill_points.py",),
    ),
    Mutation(
        "one transaction",
        "the cursor is committed before the events",
        "sessiond/store/commit.py",
        "    note_first_ts(db, source, batch.parsed)\n    tally = write_records(",
        '    sources.advance(db, source, batch.chunk, batch.carry)\n    db.execute("COMMIT")\n'
        '    db.execute("BEGIN IMMEDIATE")\n    note_first_ts(db, source, batch.parsed)\n    tally = write_records(',
        ("tests/faults/test_kill_points.py",),
    ),
    Mutation(
        "survives a power cut",
        "synchronous = NORMAL",
        "sessiond/store/connect.py",
        'db.execute("PRAGMA synchronous = FULL")',
        'db.execute("PRAGMA synchronous = NORMAL")',
        ("tests/faults/test_power_loss.py",),
    ),
    Mutation(
        "a chunk follows the last",
        "the gap check is dropped",
        "sessiond/store/commit.py",
        "    if source.is_broken:\n",
        "    if False:\n",
        ("tests/store/test_writer.py", "tests/test_things_that_fail.py"),
    ),
    Mutation(
        "identity",
        "the tail marker is not looked at",
        "sessiond/intake/identity.py",
        "or _hash(before) != checkpoint.marker:",
        "or False:",
        ("tests/faults/test_identity.py", "tests/faults/test_machine.py"),
    ),
    Mutation(
        "identity",
        "the head is not looked at",
        "sessiond/intake/identity.py",
        "if _hash(content.read_at(0, checkpoint.head_bytes)) != checkpoint.head:",
        "if False:",
        ("tests/faults/test_identity.py", "tests/faults/test_machine.py", "tests/intake/test_tail.py"),
    ),
    Mutation(
        "identity",
        "another inode is taken for the same file",
        "sessiond/intake/identity.py",
        "is_same_inode = (stat.st_dev, stat.st_ino) == (checkpoint.device, checkpoint.inode)",
        "is_same_inode = True",
        ("tests/faults/test_identity.py", "tests/faults/test_machine.py", "tests/intake/test_tail.py"),
    ),
    Mutation(
        "identity",
        "a file that shrank goes on",
        "sessiond/intake/identity.py",
        "if content.size is not None and content.size < checkpoint.offset:",
        "if False:",
        ("tests/faults/test_identity.py",),
    ),
    Mutation(
        "only whole lines",
        "a line without its newline is flushed",
        "sessiond/intake/tail.py",
        'end = data.rfind(b"\\n") + 1 or max(0, data.find(b"\\0"))\n        if not end and',
        "end = len(data)\n        if not end and",
        ("tests/intake/test_tail.py", "tests/test_splits.py"),
    ),
    Mutation(
        "only whole lines",
        "lines end at whatever str.splitlines() takes for an end",
        "sessiond/intake/tail.py",
        '*lines, rest = data.split(b"\\n")',
        '*lines, rest = [text.encode() for text in data.decode(errors="replace").splitlines()] + [b""]',
        ("tests/intake/test_tail.py", "tests/faults/test_content.py"),
    ),
    Mutation(
        "never evicted before distilled",
        "the guard of the DELETE is dropped",
        "sessiond/store/evict.py",
        "(s.analyzed_at IS NOT NULL OR s.next_seq = 1) AND s.refold = 0 AND s.digested_seq >= s.next_seq - 1",
        "s.refold >= 0",
        ("tests/passes/test_promises.py", "tests/passes/test_evict.py", "tests/faults/test_letting_go.py"),
    ),
    Mutation(
        "never evicted before distilled",
        "a session that came to life since the plan goes all the same",
        "sessiond/store/evict.py",
        " WHERE s.id = :id AND {COVERED} AND {_THERE} AND NOT s.pinned AND s.active_at <= :active_before\n",
        " WHERE s.id = :id AND {_THERE} AND NOT s.pinned\n",
        ("tests/passes/test_evict.py", "tests/passes/test_watermarks.py", "tests/faults/test_letting_go.py"),
    ),
    Mutation(
        "one writer",
        "readers may write",
        "sessiond/store/connect.py",
        "db = _open(path, apsw.SQLITE_OPEN_READONLY)\n    db.set_busy_timeout(BUSY_MS)\n"
        '    db.execute("PRAGMA query_only = ON")',
        "db = _open(path, apsw.SQLITE_OPEN_READWRITE)\n    db.set_busy_timeout(BUSY_MS)",
        ("tests/store/test_writer.py",),
    ),
    Mutation(
        "the index follows",
        "an index that is ahead of the store is taken as it is",
        "sessiond/store/search.py",
        "if position > newest:",
        "if False:",
        ("tests/faults/test_search_index.py",),
    ),
    Mutation(
        "private",
        "anybody may ask",
        "sessiond/serve/server.py",
        "uid = protocol.peer_uid(connection)",
        "uid = os.geteuid()",
        ("tests/serve/test_server.py", "tests/faults/test_access.py"),
    ),
    Mutation(
        "private",
        "replies are not masked",
        "sessiond/daemon.py",
        "return self._mask.mask_json(reply)",
        "return reply",
        ("tests/faults/test_secrets.py",),
    ),
    Mutation(
        "harmless on a terminal",
        "escapes are printed as they come",
        "sessiond/cli/terminal.py",
        "    return _UNSAFE.sub(_escape, text)\n",
        "    return text\n",
        ("tests/faults/test_adversarial.py", "tests/cli/test_terminal.py"),
    ),
)


def copy_of_the_code(folder: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (PROJECT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)


def run(folder: Path, tests: tuple[str, ...]) -> tuple[bool, str]:
    """Did they all pass, and if not, which failed first."""
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not long", "--no-header", "-rfE", *tests]
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    failed = re.search(r"^(?:FAILED|ERROR) \S*?([\w.]+::\S+)", done.stdout, flags=re.MULTILINE)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    return done.returncode == 0, failed[1] if failed else ""


def judge(folder: Path, mutation: Mutation) -> str:
    path = folder / mutation.file
    text = path.read_text()
    try:
        path.write_text(text.replace(mutation.old, mutation.new))
        survived, caught_by = run(folder, mutation.tests)
    finally:
        path.write_text(text)
    return "" if survived else caught_by


def main() -> int:
    chosen = [each for each in MUTATIONS if not sys.argv[1:] or any(word in each.done for word in sys.argv[1:])]
    survivors = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        copy_of_the_code(folder)
        tests = tuple(sorted({test for each in chosen for test in each.tests}))
        passed, failed = run(folder, tests)
        if not passed:
            print(f"unbroken, {failed} fails already: nothing can be learnt")
            return 1
        print("| rule | broken so | noticed by | seconds |\n|---|---|---|---|", flush=True)
        for mutation in chosen:
            began = time.monotonic()
            caught_by = judge(folder, mutation)
            survivors += not caught_by
            told = f"`{caught_by}`" if caught_by else "**nobody**"
            print(f"| {mutation.rule} | {mutation.done} | {told} | {time.monotonic() - began:.0f} |", flush=True)
    print(f"\n{len(chosen) - survivors} of {len(chosen)} were noticed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
