"""From a working directory to its repository: the path of the main work tree, found by looking for `.git`.

A linked worktree counts as its main repository. Without a `.git` above it, the directory stands for itself.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path


@lru_cache(maxsize=4096)
def find_repo(cwd: str) -> str:
    path = Path(cwd)
    if not path.is_absolute():
        return cwd
    for folder in (path, *path.parents):
        git = folder / ".git"
        try:
            if git.is_dir():
                return str(folder)
            if git.is_file():
                return _main_work_tree(git) or str(folder)
        except (OSError, ValueError):  # unreadable, or a name no file system takes
            break
    return cwd


def _main_work_tree(git_file: Path) -> str | None:
    """A worktree's .git is a file: "gitdir: /main/.git/worktrees/name"."""
    text = git_file.read_text(errors="replace")[:4096]
    prefix, _, target = text.partition(":")
    if prefix.strip() != "gitdir":
        return None
    git_dir = (git_file.parent / target.strip()).resolve()
    if git_dir.parent.name == "worktrees" and git_dir.parent.parent.name == ".git":
        return str(git_dir.parent.parent.parent)
    return None  # a submodule: its own repository
