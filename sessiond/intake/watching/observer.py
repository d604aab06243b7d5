"""watchdog as we use it: which observer, which events, and a handler that turns them into hints."""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from typing import TYPE_CHECKING

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.observers.api import BaseObserver

# Never opened or closed: our own reading would cause hints. FSEvents tells neither, and merges kinds so that
# none can be trusted: there, any event about a file says "look at it".
_INOTIFY_EVENTS: list[type[FileSystemEvent]] = [
    FileCreatedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileDeletedEvent,
    DirCreatedEvent,
    DirMovedEvent,
    DirDeletedEvent,
]
EVENTS = None if sys.platform == "darwin" else _INOTIFY_EVENTS


class Handler(FileSystemEventHandler):
    """Tells `on_hint` of files (both ends of a move), `on_directory` that something is to be looked at in a directory.

    What kind of event it was decides nothing: FSEvents merges several into one and may name only their directory.
    """

    def __init__(
        self,
        on_hint: Callable[[str], None],
        on_trouble: Callable[[str], None],
        on_directory: Callable[[], None],
    ) -> None:
        self._on_hint = on_hint
        self._on_trouble = on_trouble
        self._on_directory = on_directory

    def dispatch(self, event: FileSystemEvent) -> None:
        try:
            if not event.is_directory:
                for path in (event.src_path, event.dest_path):
                    if path:
                        self._on_hint(os.fsdecode(path))
            else:
                self._on_directory()
        except Exception:  # noqa: BLE001 - it would end watchdog's thread, and with it every hint
            self._on_trouble("hint_failed")


def new_observer(on_overflow: Callable[[], None]) -> BaseObserver:
    """OSError or ImportError where this system has no native watch to give."""
    if sys.platform == "linux":
        from sessiond.intake.watching.inotify import InotifyObserver  # noqa: PLC0415 - there is none elsewhere

        return InotifyObserver(on_overflow)
    elif sys.platform == "darwin":  # noqa: RET505 - mypy skips other platforms by branch
        from watchdog.observers.fsevents import FSEventsObserver  # noqa: PLC0415 - never kqueue: one fd per file

        return FSEventsObserver()
    else:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def is_alive(observer: BaseObserver) -> bool:
    """The thread that dispatches and, for inotify, the one that reads; emitters belong to their roots."""
    reader = getattr(observer, "reader", None)
    return observer.is_alive() and (reader is None or reader.is_alive())


def why_unavailable(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return "inotify instance limit reached; raise it: sudo sysctl fs.inotify.max_user_instances=1024"
    return f"{type(error).__name__}: {error}"


def calm() -> None:
    """Keep watchdog quiet: what matters of what it says is found by other means and named in `health`."""
    # It warns with the repr of all its watches, tens of kilobytes for each directory that it meets twice, and
    # at debug it logs each event with its path.
    warnings.filterwarnings("ignore", message="Callback with id ", category=RuntimeWarning)
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)
