"""The command line. This module only dispatches: a verb in, an exit code out, every failure in one line on stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from sessiond.cli import terminal
from sessiond.cli.group import cli
from sessiond.errors import SessiondError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERRUPTED = 130  # 128 + SIGINT, as a shell has it


def main(args: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    terminal.be_tolerant()
    try:
        code = _run(list(sys.argv[1:] if args is None else args))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _silence_stdout()
        return 0
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    return code


def _run(args: list[str]) -> int:
    try:
        with cli.make_context("sessiond", args) as context:
            cli.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        return _fail(_usage_words(error), 2)
    except click.ClickException as error:
        return _fail(error.format_message(), error.exit_code)
    except SessiondError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        raise
    except PermissionError as error:
        return _fail(f"{error.strerror}: {error.filename} (check its owner and permissions)", 77)
    except OSError as error:
        return _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 1)
    except Exception as error:
        # By name: the client path has not imported apsw, and must not do so to say what went wrong.
        name = type(error).__name__
        is_text = name == "UnicodeDecodeError"  # of a damaged store: what we wrote is text
        if type(error).__module__.partition(".")[0] != "apsw" and not is_text:
            raise
        is_busy = name == "BusyError"
        words = (
            "the store is locked by another program (try again)" if is_busy else f"the store cannot be read: {error}"
        )
        if is_text or name in ("CorruptError", "NotADBError"):
            words += " (restart the daemon: it sets a damaged store aside and makes it again)"
        return _fail(words, 75 if is_busy else 1)
    return 0


def _usage_words(error: click.UsageError) -> str:
    """What click says, on one line: the fact, and the way out where click does not know one."""
    message = error.format_message().strip()
    message = message[:1].lower() + message[1:]
    if "(" in message or error.ctx is None:
        return message
    return f"{message.rstrip('.')} (see: {error.ctx.command_path} --help)"


def _fail(words: str, code: int) -> int:
    from sessiond.mask import Masker  # only who fails pays for it

    # A path or a value that is quoted may hold a key. By the usual patterns: the user's own may be what is wrong.
    for line in Masker().mask(words).splitlines():  # several only for a configuration with several mistakes
        terminal.say_error(line)
    return code


def _silence_stdout() -> None:
    # What is still buffered would fail again, loudly, when Python closes the stream.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
