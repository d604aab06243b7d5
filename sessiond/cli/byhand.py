"""Verbs that change the store: the daemon is asked where one runs; else the lock is taken and it is done here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sessiond import paths
from sessiond.errors import NotRunning
from sessiond.serve.client import Client

if TYPE_CHECKING:
    from pathlib import Path

ASK_AGAIN_SECONDS = 0.05


def work(config_file: Path | None, verb: str, **params: Any) -> dict[str, Any]:
    """Have this done, and return its report. Raises what the work raised, wherever it was done."""
    client = Client(paths.resolve(paths.environment()).socket)
    try:
        ticket = client.call("work", verb=verb, params=params)["ticket"]
    except NotRunning:
        from sessiond.daemon import work_once

        return work_once(config_file, verb, params)
    while not (state := client.call("worked", ticket=ticket))["done"]:
        time.sleep(ASK_AGAIN_SECONDS)
    report: dict[str, Any] = state["report"]
    return report
