"""A path comes up: which source is it? Known, moved, compressed, linked twice, excluded, somebody else's, or new."""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from sessiond.adapters.base import Claim, NeedMore, Reader
from sessiond.intake import identity, rewritten, tail
from sessiond.intake.content import Compressed, Content, Plain
from sessiond.intake.opened import opened
from sessiond.intake.repo import find_repo
from sessiond.intake.scan import real
from sessiond.model import Checkpoint, Fact, Line
from sessiond.store import sources, tombstones
from sessiond.store.connect import rows
from sessiond.store.sources import EXCLUDED, FOREIGN, FORGOTTEN, GONE, LIVE, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import apsw

    from sessiond.adapters.base import Adapter
    from sessiond.intake.scan import Root

KEPT = 1000  # sources kept in memory; each is a few kilobytes at most
COMPRESSED = ".zst"
STAND_IN = "stand_in"
MAX_PATH_BYTES = 4096


@dataclass(slots=True)
class Registered:
    source: Source
    facts: list[Fact]  # what the path or the head already says about the session
    is_back: bool = False  # it was gone, or somewhere else: that alone is news


class Register:
    """Finds the source of a path, or None where there is nothing to read (yet)."""

    def __init__(
        self,
        db: apsw.Connection,
        adapters: Mapping[str, Adapter],
        roots: Sequence[Root],
        is_excluded: Callable[[str], bool] | None,
        limits: tail.Limits,
    ) -> None:
        self._db = db
        self._adapters = adapters
        self._is_excluded = is_excluded
        self._limits = limits
        self._kept: OrderedDict[str, Source] = OrderedDict()
        self._inodes: dict[tuple[int, int], Source] = {}  # of those: the store does not know the newest yet
        self.awaiting: set[str] = set()  # paths that only another file can decide on
        self.links: dict[str, str] = {}  # second name of a file -> the name that it is read under
        self._left: dict[str, Source] = {}  # path -> the source that moved from it: the store may still name it there
        self._left_alone: set[str] = set()  # files of forgotten sessions: their paths are nowhere else
        self._wanted = roots
        self._roots = [(real(root.folder) + os.sep, root) for root in roots]

    def locate(self, path: str) -> tuple[Root, str] | None:
        """The root that a path lies below, and its path below that agent's home."""
        found = self._locate(path)
        if found is None:  # a root may have become a link, or a link been turned, since
            self._roots = [(real(root.folder) + os.sep, root) for root in self._wanted]
            found = self._locate(path)
        return found

    def _locate(self, path: str) -> tuple[Root, str] | None:
        for folder, root in self._roots:
            if path.startswith(folder):
                return root, f"{root.prefix}/{path[len(folder) :]}" if root.prefix else path[len(folder) :]
        return None

    def is_wanted(self, path: str) -> bool:
        place = self.locate(path)
        return place is not None and self._adapters[place[0].flavor].wants(PurePosixPath(place[1]))

    def has_source(self, path: str) -> bool:
        """Whether a file was read under this path, and has not moved from there."""
        return path in self._kept or (path not in self._left and sources.by_path(self._db, path) is not None)

    def find(self, path: str) -> Registered | None:
        kept = self._kept.get(path)
        if kept is not None:
            self._kept.move_to_end(path)
            return None if self._is_relieved(kept) else self._with_head(Registered(kept, []))
        if path in self._left_alone or tombstones.is_path_forgotten(self._db, path):
            return None
        found = self._known(path) or self._new(path)
        if found is not None:
            self._keep(found.source)
        return found

    def drop(self, path: str) -> None:
        """Forget what is remembered of this path; the store knows better now."""
        self._kept.pop(path, None)
        self.links.pop(path, None)

    def leave_alone(self, path: str) -> None:
        """It is a file of a forgotten session: there is nothing to read in it, now or later."""
        self.drop(path)
        self._left_alone.add(path)

    def _keep(self, source: Source) -> None:
        self._kept[source.path] = source
        self._inodes[source.checkpoint.device, source.checkpoint.inode] = source
        if len(self._inodes) > 2 * KEPT:
            self._inodes = {(each.checkpoint.device, each.checkpoint.inode): each for each in self._kept.values()}
        for path in list(self._kept):
            if len(self._kept) <= KEPT:
                break
            if not self._kept[path].in_flight:  # else the store does not know yet how far it was read
                del self._kept[path]

    # --- known paths ----------------------------------------------------------------------------

    def _known(self, path: str) -> Registered | None:
        source = sources.by_path(self._db, path)
        left = self._left.get(path)
        if left is not None and source is not None and source.id == left.id:
            return None  # it is another file's name now
        self._left.pop(path, None)
        if source is None or source.state == FORGOTTEN:
            return None if source is None else Registered(source, [])
        if self._is_relieved(source):
            return None
        was_gone = source.state == GONE
        if was_gone and source.session_row is None:  # it was excluded before it went
            source.state = EXCLUDED
        if source.state in (FOREIGN, EXCLUDED):
            return self._left_out_before(source, was_gone=was_gone)
        source.state = LIVE
        if self._is_excluded is not None:
            verdict = self._is_session_excluded(source)
            if verdict is None:
                return None
            source.state = EXCLUDED if verdict else LIVE
        return self._with_head(Registered(source, [], is_back=was_gone))

    def _with_head(self, known: Registered) -> Registered | None:
        """A file that was registered while it was empty says only now, with its first lines, what it is."""
        source = known.source
        if source.checkpoint.offset or source.state != LIVE or source.reader == Reader.SNAPSHOT:
            return known
        found = self._claimed(source.path)
        if found is None or found[0].source.state != LIVE:
            if found is not None and found[0].source.state == EXCLUDED:
                source.state = EXCLUDED
            return None if found is None else known
        new = found[0].source
        source.is_sidechain, source.is_timeless, source.seed, source.carry = (
            new.is_sidechain,
            new.is_timeless,
            new.seed,
            new.carry,
        )
        source.session_row = None  # so that its session's row is brought up to date as well
        return replace(known, facts=found[0].facts)

    def _left_out_before(self, source: Source, *, was_gone: bool) -> Registered | None:
        """What was written while a privacy rule held stays out, also when the rule is gone: reading goes on where
        it ended. A file that nobody claimed is read from its beginning once somebody does.
        """
        found = self._claimed(source.path)
        if found is None:
            return None
        new, _ = found
        if new.source.state == source.state:
            return Registered(source, [], is_back=was_gone)
        new.source.id = source.id
        if source.state == EXCLUDED:
            new.source.checkpoint = self._passed(new.source, source.checkpoint.offset)
            if source.session_row is not None:  # read before the rule came: what was stored then stays what it is
                source.checkpoint, source.state = new.source.checkpoint, LIVE
                return Registered(source, new.facts)
        return new

    def _passed(self, source: Source, offset: int) -> Checkpoint:
        with self._content(source) as (content, stat):
            return identity.checkpoint_before(content, stat, offset)

    def _is_session_excluded(self, source: Source) -> bool | None:
        """None: it began before there was a rule, and has not said its working directory yet."""
        query = "SELECT cwd, repo FROM _session WHERE id = ? AND cwd IS NOT NULL"
        for cwd, repo in rows(self._db, query, (source.session_row,)):
            return self._matches(cwd, source.path) or self._matches(repo, source.path)
        found = self._claimed(source.path)
        return None if found is None else found[0].source.state == EXCLUDED

    def _matches(self, place: str | None, path: str) -> bool:
        return self._is_excluded is not None and self._is_excluded(place if place is not None else path)

    # --- new paths ------------------------------------------------------------------------------

    def _new(self, path: str) -> Registered | None:
        found = self._claimed(path)
        if found is None:
            return None
        new, stat = found
        source = new.source
        if source.state == FOREIGN:
            return new
        if source.reader == Reader.ZSTD and os.path.exists(path.removesuffix(COMPRESSED)):
            return None  # plain wins when both exist
        self.links.pop(path, None)
        for old in (*self._of_inode(stat), *self._former(source)):
            if old.path == path or old.flavor != source.flavor or old.state in (EXCLUDED, FOREIGN, FORGOTTEN):
                continue
            if _is_linked(old, stat):
                self.links[path] = old.path
                return None  # a second name of a file that is read under its first
            if not _is_elsewhere(old, path, stat) and self._begins_like(old, source):
                return self._moved(old, source)
        return new

    def _moved(self, old: Source, new: Source) -> Registered:
        """The same source under its new path. One in memory is ahead of the store, so it is that one which moves."""
        source = self._kept.pop(old.path, old)
        self._left.pop(new.path, None)
        self._left[source.path] = source
        source.path, source.home, source.below, source.reader = new.path, new.home, new.below, new.reader
        source.state = LIVE
        return Registered(source, [], is_back=True)

    def _of_inode(self, stat: os.stat_result) -> list[Source]:
        """The sources that this very file was read as. The one in memory is not in the store yet, or ahead of it."""
        inode = stat.st_dev, stat.st_ino
        stored = sources.by_inode(self._db, *inode)
        kept = self._inodes.get(inode)
        if kept is None or self._kept.get(kept.path) is not kept:
            return stored
        is_still_its = (kept.checkpoint.device, kept.checkpoint.inode) == inode
        return [*([kept] if is_still_its else ()), *(each for each in stored if each.id != kept.id)]

    def _former(self, source: Source) -> list[Source]:
        return sources.by_member(self._db, source.uid, source.member)

    def _begins_like(self, old: Source, new: Source) -> bool:
        if new.reader == Reader.SNAPSHOT or not old.checkpoint.offset:
            return (old.session_id, old.member) == (new.session_id, new.member)
        with self._content(new) as (content, _):
            return identity.begins_alike(content, old.checkpoint)

    @contextmanager
    def _content(self, source: Source) -> Iterator[tuple[Content, os.stat_result]]:
        with opened(source.path, source.below.count("/")) as fd:
            stat = os.fstat(fd)
            is_packed = source.reader == Reader.ZSTD
            yield (Compressed(fd, stat) if is_packed else Plain(fd, stat.st_size)), stat

    def _claimed(self, path: str) -> tuple[Registered, os.stat_result] | None:
        """What the path and the first lines say. None: not ours to look at, or nothing can be said yet."""
        place = self.locate(path)
        if place is None:
            return None
        root, below = place
        adapter = self._adapters[root.flavor]
        head, stat = tail.head(path, below.count("/"), compressed=path.endswith(COMPRESSED))
        source = Source(flavor=root.flavor, home=root.home, path=path, below=below, adapter_version=adapter.version)
        source.checkpoint = replace(source.checkpoint, device=stat.st_dev, inode=stat.st_ino)
        source.size, source.mtime_ns = stat.st_size, stat.st_mtime_ns
        try:
            claim = adapter.claims(PurePosixPath(below), head)
        except NeedMore:
            return None
        if stat.st_size and not head and (claim is None or claim.reader != Reader.SNAPSHOT):
            return None  # the first line is still being written; a file rewritten whole may do without a newline
        if claim is not None and self._has_the_real_one(path, root.flavor, claim):
            claim = None
        if self._is_forgotten(root.flavor, below, claim):
            return None
        if claim is None:
            source.state = FOREIGN
            return Registered(source, []), stat
        if claim.cwd is None and claim.cwd_file is not None:
            claim = replace(claim, cwd=self._read_cwd(os.path.join(os.path.dirname(path), claim.cwd_file)))
        _take_claim(source, claim)
        if self._is_excluded is not None:
            verdict = self._judge(source, claim, adapter)
            if verdict is None:
                return None
            if verdict:
                source.state, source.session_id = EXCLUDED, ""
        # A head may be short or long when the file is found: what records state themselves is left to them.
        is_told_here = claim.cwd is not None and not claim.cwd_in_records
        facts = [Fact("cwd", claim.cwd or "", rank=8, first=True)] if is_told_here else []
        return Registered(source, facts), stat

    def _is_forgotten(self, flavor: str, below: str, claim: Claim | None) -> bool:
        """Wherever it lies. A file that nobody claims goes with the session that a folder above it is named after."""
        names = below.split("/") if claim is None else [claim.session_id]
        return tombstones.is_any_forgotten(self._db, [f"{flavor}:{_as_text(name)}" for name in names])

    def _read_cwd(self, path: str) -> str | None:
        path = os.path.normpath(path)
        place = self.locate(path)
        if place is None:
            return None
        try:
            with opened(path, place[1].count("/")) as fd:
                data = os.read(fd, MAX_PATH_BYTES + 1)
            return None if len(data) > MAX_PATH_BYTES else data.decode().strip("\r\n") or None
        except (OSError, UnicodeDecodeError):
            return None

    # --- files that stand in for others -----------------------------------------------------------

    def _has_the_real_one(self, path: str, flavor: str, claim: Claim) -> bool:
        """Whether the file that this one would stand in for is there, or was: what it said is stored already."""
        real = claim.stands_in_for
        if real is None:
            return False
        if os.path.lexists(os.path.join(os.path.dirname(path), real)):
            return True
        return bool(sources.by_member(self._db, f"{flavor}:{claim.session_id}", real))

    def _is_relieved(self, source: Source) -> bool:
        """It was read in place of another file, which is there now: it will be read no further."""
        if source.role != STAND_IN:
            return False
        found = self._claimed(source.path)
        return found is None or found[0].source.state == FOREIGN

    # --- privacy --------------------------------------------------------------------------------

    def _judge(self, source: Source, claim: Claim, adapter: Adapter) -> bool | None:
        """Is it excluded? None: its working directory may still come, so nothing of it may be stored yet."""
        cwd = claim.cwd
        if cwd is None and claim.cwd_beside is not None:
            return self._judge_beside(source, claim.cwd_beside)
        if cwd is None and claim.cwd_may_come:
            cwd = self._search_cwd(source, adapter)
            if cwd is None:
                return None
        if cwd is None:
            return self._judge_silent(source, claim)
        return self._matches(cwd, source.path) or self._matches(find_repo(cwd), source.path)

    def _judge_beside(self, source: Source, name: str) -> bool | None:
        """As that other file is judged, which says the working directory; without it, by the path."""
        try:
            found = self._claimed(os.path.join(os.path.dirname(source.path), name))
        except FileNotFoundError:
            return self._matches(None, source.path)
        return None if found is None else found[0].source.state == EXCLUDED

    def _judge_silent(self, source: Source, claim: Claim) -> bool | None:
        """A file that never names its directory goes with its session's other files, else by its own path."""
        if claim.role == "sidecar":
            query = "SELECT cwd FROM _session WHERE uid = ?"
            for (cwd,) in rows(self._db, query, (source.uid,)):
                if cwd is not None:
                    self.awaiting.discard(source.path)
                    return self._matches(cwd, source.path)
            self.awaiting.add(source.path)
            return None
        return self._matches(None, source.path)

    def _search_cwd(self, source: Source, adapter: Adapter) -> str | None:
        """Read on, storing nothing, until a line names the working directory."""
        at, carry = source.checkpoint, dict(source.carry)
        while True:
            is_packed = source.reader == Reader.ZSTD
            if source.reader == Reader.SNAPSHOT:
                chunk = rewritten.read(source.path, source.below.count("/"), at, self._limits)
            else:
                chunk = tail.read(source.path, source.below.count("/"), at, self._limits, compressed=is_packed)
            for line in chunk.lines:
                for fact in _facts_of(adapter, line, carry):
                    if fact.name == "cwd":
                        return fact.value
            if not chunk.more:
                return None
            at = chunk.checkpoint


def _facts_of(adapter: Adapter, line: Line, carry: dict[str, object]) -> list[Fact]:
    try:
        return [record for record in adapter.parse(line, carry) if isinstance(record, Fact)]
    except Exception:  # noqa: BLE001 - the line will be rejected when the file is read
        return []


def _take_claim(source: Source, claim: Claim) -> None:
    source.session_id = _as_text(claim.session_id)
    source.member = _as_text(claim.member)
    source.role = STAND_IN if claim.stands_in_for is not None else claim.role
    source.reader = claim.reader
    source.is_sidechain = claim.is_sidechain
    source.is_timeless = claim.timeless
    source.seed = {name: _as_text(each) for name, each in claim.seed.items()}
    source.carry = dict(source.seed)


def _as_text(name: str) -> str:
    """A file name need not be text, but an id is: bytes that are none stand in it as escapes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _is_linked(old: Source, stat: os.stat_result) -> bool:
    try:
        there = os.lstat(old.path)
    except OSError:
        return False
    return _is_own_name(old.path) and (there.st_dev, there.st_ino) == (stat.st_dev, stat.st_ino)


def _is_elsewhere(old: Source, path: str, stat: os.stat_result) -> bool:
    """The old file is still there, so the new one is a copy: unless one is the other, compressed."""
    is_same_inode = (stat.st_dev, stat.st_ino) == (old.checkpoint.device, old.checkpoint.inode)
    if is_same_inode and old.checkpoint.offset:  # of an empty file the inode alone tells nothing: it is given again
        return False  # this is the old file; what has its name now is another
    is_twin = old.path == path + COMPRESSED or path == old.path + COMPRESSED
    return not is_twin and os.path.lexists(old.path) and _is_own_name(old.path)


def _is_own_name(path: str) -> bool:
    """False where a folder above it is a link now: the file is found, and read, under its real path."""
    folder = os.path.dirname(path)
    return real(folder) == folder
