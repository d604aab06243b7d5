"""The agents that sessiond understands: every module of this folder with an ADAPTER, and every installed plug-in.

A plug-in names its adapter under the entry-point group `sessiond.adapters`; one that cannot be loaded, or that fails
later, is named in `load_errors`, and the rest goes on: a broken plug-in never stops the journal.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING

from sessiond import model
from sessiond.adapters import _plugins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sessiond.adapters.base import Adapter

ENTRY_POINTS = "sessiond.adapters"
load_errors: dict[str, str] = {}
"""Entry point -> what is wrong with it, in one line."""


@cache
def adapters() -> Mapping[str, Adapter]:
    """Flavor -> adapter, the built-in ones first, each in a fixed order."""
    found: dict[str, Adapter] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        adapter = getattr(importlib.import_module(f"{__name__}.{module}"), "ADAPTER", None)
        if adapter is not None:
            found[adapter.flavor] = adapter
    load_errors.clear()
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda p: (p.name, p.value)):
        plugin = _plugins.load(point, found, load_errors)
        if plugin is not None:
            found[plugin.flavor] = plugin
    return MappingProxyType(found)


def register_flavors() -> None:
    """Tell the model which flavors exist."""
    model.FLAVORS.update(adapters())
