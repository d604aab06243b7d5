"""A home full of history, made by replaying real session files under new identities.

Every copy has ids of its own (uuids, message, call and request ids), so nothing is taken for a replay, and an mtime of
its own, spread over a year and ending now.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

IDS = re.compile(
    rb"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-)[0-9a-f]{12}|(msg_|toolu_|req_|call_)[0-9A-Za-z]{6}"
)


def replay(fixtures: Path, home: Path, size: int) -> tuple[int, int]:
    """Fill `home` with at least `size` bytes of claude and codex history; (files, bytes)."""
    sources = [
        (path, home / f".{flavor}" / path.relative_to(base))
        for flavor in ("claude", "codex")
        for base in (fixtures / flavor, fixtures / "real" / flavor)
        for path in sorted(base.rglob("*.jsonl"))
        if path.stat().st_size and "incremental" not in path.parts and path.name != "journal.jsonl"
    ]
    contents = {path: path.read_bytes() for path, _ in sources}
    written = files = number = 0
    now = time.time()
    while written < size:
        number += 1
        tag = b"%012x" % number
        mark = b"%06d" % number

        def renamed(match: re.Match[bytes], tag: bytes = tag, mark: bytes = mark) -> bytes:
            return match[1] + tag if match[1] else match[2] + mark

        for path, place in sources:
            data = IDS.sub(renamed, contents[path])
            name = IDS.sub(renamed, os.fsencode(place.name)).decode()
            target = place.with_name(name if name != place.name else f"{place.stem}-{number}{place.suffix}")
            target = Path(os.fsdecode(IDS.sub(renamed, os.fsencode(target.parent)))) / target.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            age = (written / size) * 365 * 86_400
            os.utime(target, (now - age, now - age))
            written += len(data)
            files += 1
            if written >= size:
                break
    return files, written
