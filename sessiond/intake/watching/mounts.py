"""Which file system a path lies on: from some of them the kernel hears nothing of what others write.

On the same ones a store is not safe: SQLite's WAL wants memory and locks that all its readers share.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sessiond.errors import ConfigError

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
# FUSE programs over a folder of this machine; any other may have a network behind it.
_LOCAL_FUSE = frozenset({"bindfs", "cryfs", "encfs", "fuse-overlayfs", "gocryptfs", "mergerfs", "securefs"})
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
    if kind is None:
        return False
    return kind in _REMOTE or (kind.startswith("fuse.") and kind.removeprefix("fuse.") not in _LOCAL_FUSE)


def refuse_remote_store(store: Path) -> None:
    """ConfigError where the store would lie on a network file system. Nothing has been made there yet."""
    kind = file_system(os.path.realpath(store.parent))
    if is_remote(kind):
        raise ConfigError(
            f"{store} would lie on a network file system ({kind}), where SQLite can lose or damage it",
            hint="choose a folder on a local disk: store.path, or SESSIOND_STATE_DIR",
        )
