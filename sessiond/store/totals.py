"""Sums over sessions, each token counted once: a child whose parent already states what it spent is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from sessiond.model import Cost
from sessiond.store.connect import rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

_SPENT = """
SELECT sum(input_tokens), sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens), sum(duration_ms)
  FROM usage
 WHERE NOT is_in_parent
   AND (:everything OR session_uid IN (SELECT value FROM json_each(:uids)))
"""
_SAID = """
SELECT sum(turns), sum(retries) FROM _session
 WHERE :everything OR uid IN (SELECT value FROM json_each(:uids))
"""


def total(db: apsw.Connection, uids: Sequence[str] | None = None) -> Cost:
    """What these sessions cost together; all of them where none are named."""
    bound = {"everything": uids is None, "uids": orjson.dumps(list(uids or ())).decode()}
    ((tokens_in, out, read, written, took),) = rows(db, _SPENT, bound)
    ((turns, retries),) = rows(db, _SAID, bound)
    is_spent = (tokens_in, out, read, written) != (None,) * 4
    return Cost(
        input_tokens=tokens_in,
        output_tokens=out,
        cache_tokens=(read or 0) + (written or 0) if is_spent else None,
        cache_read_tokens=read,
        cache_write_tokens=written,
        wall_clock_s=None if took is None else took / 1000,
        turns=turns,
        retries=retries,
    )
