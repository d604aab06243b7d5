"""Which file system a path lies on: from some of them the kernel hears nothing of what others write."""

from __future__ import annotations

import os
import re
from pathlib import Path

TABLE = Path("/proc/self/mounts")

# What another machine, or the host of this one, writes there raises no event here.
_REMOTE = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "drvfs",
        "fakeowner",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
    }
    | {"nfs4", "orangefs", "prl_fs", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "vmhgfs"}
)
_ESCAPE = re.compile(r"\\([0-7]{3})")  # how the table writes blanks, newlines, backslashes


def file_system(path: str, table: Path | None = None) -> str | None:
    """The type of the file system that holds the real path `path`, or None where there is no table to ask."""
    try:
        lines = os.fsdecode((table or TABLE).read_bytes()).split("\n")
    except OSError:
        return None
    best, kind = -1, None
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _ESCAPE.sub(lambda octal: chr(int(octal[1], 8)), fields[1]).rstrip("/")
        # The longest mount point holds the path; among equals the last, which lies on top of the others.
        if len(point) >= best and (path == point or path.startswith(point + "/")):
            best, kind = len(point), fields[2]
    return kind


def is_remote(kind: str | None) -> bool:
    return kind is not None and (kind in _REMOTE or kind.startswith("fuse."))
