"""Tables that fit the terminal: columns shrink and, where there is no room at all, the least needed ones go.

Where there is no terminal nothing is cut, nothing is left out and nothing has colour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sessiond.cli.terminal import cut, pad, plain, width_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sessiond.cli.terminal import Terminal

GAP = 2


def _no_style(_: str) -> tuple[str, ...]:
    return ()


class Column(NamedTuple):
    title: str
    right: bool = False
    shrinks_to: int | None = None  # columns it can do with; None: never cut
    leaves: int = 0  # the higher, the sooner it is left out on a narrow screen; 0: never
    style: Callable[[str], tuple[str, ...]] = _no_style  # of the cell's text


def print_table(to: Terminal, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """The head and the rows; every cell is made harmless first."""
    cells = [[plain(cell) for cell in row] for row in rows]
    natural = [_natural_width(column, [row[at] for row in cells]) for at, column in enumerate(columns)]
    shown = list(range(len(columns)))
    widths = [max(width, len(column.title)) for width, column in zip(natural, columns, strict=True)]
    if to.width is not None:
        shown, widths = _fit(columns, natural, to.width)
    _print_row(to, columns, shown, widths, [column.title for column in columns], is_head=True)
    for row in cells:
        _print_row(to, columns, shown, widths, row)


def _natural_width(column: Column, cells: Sequence[str]) -> int:
    """What the column would like to have; 0 where it says nothing at all."""
    widest = max(map(width_of, cells), default=0)
    return max(len(column.title), widest) if widest else 0


def _fit(columns: Sequence[Column], natural: list[int], width: int) -> tuple[list[int], list[int]]:
    shown = [at for at in range(len(columns)) if natural[at]]
    while True:
        widths = list(natural)
        over = sum(widths[at] for at in shown) + GAP * (len(shown) - 1) - width
        elastic = [at for at in shown if columns[at].shrinks_to is not None]
        while over > 0:
            # One column at a time from the widest: two long ones end up alike, and short ones stay whole.
            widest = max(elastic, key=lambda at: widths[at] - (columns[at].shrinks_to or 0), default=None)
            if widest is None or widths[widest] <= (columns[widest].shrinks_to or 0):
                break
            widths[widest] -= 1
            over -= 1
        leaving = max((at for at in shown if columns[at].leaves), key=lambda at: columns[at].leaves, default=None)
        if over <= 0 or leaving is None:
            return shown, widths
        shown.remove(leaving)


def _print_row(
    to: Terminal,
    columns: Sequence[Column],
    shown: Sequence[int],
    widths: Sequence[int],
    row: Sequence[str],
    *,
    is_head: bool = False,
) -> None:
    parts = []
    for at in shown:
        text = row[at] if to.width is None else cut(row[at], widths[at])
        is_last = at == shown[-1] and not columns[at].right
        padded = text if is_last else pad(text, widths[at], right=columns[at].right)
        parts.append(to.style(padded, "dim") if is_head else to.style(padded, *columns[at].style(row[at])))
    to.line((" " * GAP).join(parts).rstrip())
