"""The rows of a damaged store, table by table: in one go where a table is whole, else page by page around the damage.

What a table looks like and where its tree begins is known without the damaged file: every store is made by the same
steps, and in a database with a pointer map the roots lie in the order in which the tables were made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import apsw

from sessiond.store import migrations, pages as layout
from sessiond.store.connect import rows, value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sessiond.store.pages import Pages

_UNREADABLE = (apsw.Error, UnicodeDecodeError)
_SCHEMA = "SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0"


@dataclass(slots=True)
class Table:
    """A table of the store. `lost` rows are known to have been there; of pages nobody can say how many they held."""

    name: str
    columns: tuple[str, ...]
    create: str
    root: int
    is_whole: bool = True
    read: int = 0
    lost: int = 0
    lost_pages: int = 0


def version(found: Pages) -> int:
    """Of the schema: the newest whose last tree is there, for the header may be what was hit. Where the pointer map
    was, the header says it.
    """
    for number in range(migrations.VERSION, 0, -1):
        with migrations.template(number) as db:
            if found.is_root(max(root for _, root in rows(db, _SCHEMA))):
                return number
    told = found.version
    return told if told is not None and 1 <= told <= migrations.VERSION else migrations.VERSION


def tables(found: Pages, version: int) -> dict[str, Table]:
    """Every table of a store of this schema, and the indexes that say a name of their own (see `names`)."""
    with migrations.template(version) as db:
        roots = _roots(found, dict(rows(db, _SCHEMA)))
        listed = rows(db, "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND type = 'table' ORDER BY 1")
        return {
            name: _describe(db, name, roots[name], is_rowless=bool(wr))
            for name, wr in listed
            if not name.startswith("sqlite_")
        }


def names(found: Pages, version: int, table: str, column: str) -> Table:
    """The index that keeps this column unique, as a table (column, id): it may still know what the table has lost."""
    with migrations.template(version) as db:
        roots = _roots(found, dict(rows(db, _SCHEMA)))
    create = f"CREATE TABLE t ({column}, id, PRIMARY KEY ({column}, id)) WITHOUT ROWID"
    return Table(table, (column, "id"), create, roots[f"sqlite_autoindex_{table}_1"])


def _roots(found: Pages, expected: dict[str, int]) -> dict[str, int]:
    """As the store itself says, if somebody has rearranged it; a single difference is damage."""
    try:
        with found.as_found() as db:
            db.execute("PRAGMA writable_schema = ON")  # what cannot be understood there is passed over
            told = {name: root for name, root in db.execute(_SCHEMA) if expected.get(name) != root}
    except _UNREADABLE:
        return expected
    is_rearranged = len(told.keys() & expected.keys()) > len(expected) // 2
    return {**expected, **told} if is_rearranged else expected


def _describe(db: apsw.Connection, name: str, root: int, *, is_rowless: bool) -> Table:
    """Without types and constraints: values come as they are stored. Defaults count: of a row that was written before
    a column was added, the column is not stored.
    """
    columns = rows(db, "SELECT name, dflt_value, pk FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", (name,))
    key = [column for column, _, place in sorted(columns, key=lambda each: each[2]) if place]
    is_alias = not is_rowless and len(key) == 1
    parts = [
        column
        + (" INTEGER PRIMARY KEY" if is_alias and column in key else "")
        + ("" if default is None else f" DEFAULT {default}")
        for column, default, _ in columns
    ]
    if is_rowless:
        parts.append(f"PRIMARY KEY ({', '.join(key)})")
    create = f"CREATE TABLE t ({', '.join(parts)})" + (" WITHOUT ROWID" if is_rowless else "")
    return Table(name, tuple(column for column, _, _ in columns), create, root)


def read(found: Pages, table: Table) -> Iterator[tuple[Any, ...]]:
    """Every row that can be read; some come twice where the table is not whole."""
    query = f"SELECT {', '.join(table.columns)} FROM t"
    try:
        with found.as_table(table.create, table.root) as db:
            table.is_whole = value(db, "PRAGMA quick_check(t)") == "ok"
            yield from db.execute(query)
    except _UNREADABLE:
        table.is_whole = False
    else:
        return
    for number in found.tree(table.root):
        page = found.read(number)
        kind, cells = page[0], int.from_bytes(page[3:5], "big")
        if kind in (layout.TABLE_LEAF, layout.INDEX_LEAF):
            yield from _leaf(found, table, number, query, min(cells, found.size // 4))
        elif kind == layout.INDEX_INNER:
            yield from _inner(found, table, number, query)
        elif kind != layout.TABLE_INNER:
            table.lost_pages += 1


def _leaf(found: Pages, table: Table, number: int, query: str, cells: int) -> Iterator[tuple[Any, ...]]:
    """One row after the other, by its place: a bad one does not keep those behind it."""
    with found.as_table(table.create, number) as db:
        for place in range(cells):
            try:
                yield from rows(db, f"{query} LIMIT 1 OFFSET ?", (place,))
            except _UNREADABLE:
                table.lost += 1


def _inner(found: Pages, table: Table, number: int, query: str) -> Iterator[tuple[Any, ...]]:
    """Rows stand between the children, too: from both ends up to the first child that cannot be read."""
    key = table.create.partition("PRIMARY KEY (")[2].partition(")")[0]
    backwards = ", ".join(f"{column.strip()} DESC" for column in key.split(","))
    for order in ("", f" ORDER BY {backwards}"):
        try:
            with found.as_table(table.create, number) as db:
                yield from db.execute(query + order)
        except _UNREADABLE:
            continue
        else:
            return
