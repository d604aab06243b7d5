"""What the service manager is told (sd_notify), and how often it wants to hear from us.

Without NOTIFY_SOCKET every call is a silent no-op. Nothing here raises or waits: the work comes first.
"""

from __future__ import annotations

import os
import socket
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping


class Notifier:
    """Tells systemd. Each call returns whether the message was handed over: a caller may say it again."""

    def __init__(self, env: Mapping[str, str]) -> None:
        address = env.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address  # @: the abstract namespace
        self._socket: socket.socket | None = None
        if address.startswith(("/", "@")):
            self._open()

    def ready(self, status: str | None = None) -> bool:
        """Started, or done with reloading."""
        return self._send("READY=1", *([] if status is None else [_status(status)]))

    def status(self, text: str) -> bool:
        """One line for `systemctl status`."""
        return self._send(_status(text))

    def reloading(self) -> bool:
        """Type=notify-reload tells this reload from an earlier one by the time in it; `ready` ends it."""
        return self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> bool:
        return self._send("STOPPING=1")

    def watchdog(self) -> bool:
        """Sign of life: to be sent by the loop that does the work, so that it means something."""
        return self._send("WATCHDOG=1")

    def extend_timeout(self, seconds: float) -> bool:
        """Ask for so much more time from now on, during a start (a migration) or a stop."""
        return self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> None:
        # One descriptor for life: when they run out, the watchdog must still hear from us.
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        except OSError:
            self.close()

    def _send(self, *assignments: str) -> bool:
        if self._socket is None:
            return False
        message = "\n".join(assignments).encode("utf-8", "replace")
        try:
            # The address each time: the manager may have been restarted, with a new socket at the old path.
            return self._socket.sendto(message, self._address) == len(message)
        except (OSError, ValueError):
            return False


def _status(text: str) -> str:
    return "STATUS=" + " ".join(text.split())  # a line break would start another assignment


def watchdog_interval(env: Mapping[str, str], pid: int | None = None) -> float | None:
    """Seconds between two signs of life, half of what the manager allows; None if it wants none of us."""
    if env.get("WATCHDOG_PID", "") not in ("", str(os.getpid() if pid is None else pid)):
        return None
    try:
        microseconds = int(env.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return microseconds / 2_000_000 if microseconds > 0 else None
