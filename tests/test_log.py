"""The log: one line per event, no content, and never in the way of the work."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog

from sessiond import log
from sessiond.log import render as log_render
from sessiond.log.limit import RateLimit
from sessiond.log.sink import MAX_WAITING_BYTES, Sink

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def as_before():
    """One log per process: every test leaves it as it was."""
    with warnings.catch_warnings():
        yield
        if log._output is not None:
            log._output.sink.close(1.0)
        log._output, log._lost, log._rate = None, 0, RateLimit()
        structlog.reset_defaults()


@contextmanager
def logging_to(stream, level="debug", form="json", env=None):
    finish = log.setup(level, form, stream, env=env or {})
    try:
        yield structlog.get_logger()
    finally:
        finish()


class Captured(io.StringIO):
    @property
    def text(self) -> str:
        assert log.flush(5.0)
        return self.getvalue()

    @property
    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.text.splitlines()]


# --- what a line looks like -----------------------------------------------------------------------


def test_a_line_is_json_with_time_level_event_first():
    out = Captured()
    with logging_to(out) as say:
        say.warning("record_rejected", flavor="heron", offset=4096, reason="not a JSON object")
    [line] = out.lines

    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert line["timestamp"].endswith("Z")
    del line["timestamp"]
    assert line == {
        "level": "warning",
        "event": "record_rejected",
        "flavor": "heron",
        "offset": 4096,
        "reason": "not a JSON object",
    }


def test_bound_fields_and_the_loggers_name_are_in_every_line():
    out = Captured()
    with logging_to(out):
        structlog.get_logger("intake").bind(source="a.jsonl").info("chunk_stored", lines=3)
    [line] = out.lines
    assert (line["logger"], line["source"], line["lines"]) == ("intake", "a.jsonl", 3)


@pytest.mark.parametrize(("level", "said"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_below_its_level_nothing_is_said(level, said):
    out = Captured()
    with logging_to(out, level=level) as say:
        for name in ("debug", "info", "warning", "error"):
            getattr(say, name)(f"{name}_said")
    assert len(out.lines) == said


def test_a_reload_changes_level_and_format_for_loggers_in_use():
    first, second = Captured(), Captured()
    log.setup("error", "json", first, env={})
    say = structlog.get_logger()
    say.info("one")
    finish = log.setup("debug", "json", second, env={})
    say.debug("two")
    finish()
    assert first.getvalue() == ""
    assert [line["event"] for line in second.lines] == ["two"]


def test_a_logger_made_before_the_setup_works():
    say = structlog.get_logger()
    out = Captured()
    with logging_to(out):
        say.info("worked")
    assert out.lines[0]["event"] == "worked"


def test_words_after_the_end_are_still_written():
    out = Captured()
    with logging_to(out) as say:
        pass
    say.info("stopped")
    assert out.lines[0]["event"] == "stopped"


def test_on_a_terminal_lines_are_for_eyes():
    main, other = pty.openpty()
    with os.fdopen(other, "w") as terminal:
        with logging_to(terminal, form="auto", env={"NO_COLOR": "1"}) as say:
            say.info("started", pid=5, name="\x1b[2J\x07bad")
        text = os.read(main, 4096).decode()
    os.close(main)
    assert "started" in text
    assert "pid=5" in text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "{" not in text


def test_console_shows_an_exception_over_several_lines():
    out = Captured()
    with logging_to(out, form="console") as say:
        try:
            1 / 0  # noqa: B018
        except ZeroDivisionError:
            say.exception("pass_failed")
    assert "ZeroDivisionError" in out.text
    assert "test_log.py" in out.text


def test_under_the_journal_there_is_a_priority_and_no_time(tmp_path):
    path = tmp_path / "journal"
    with path.open("w") as stream:
        found = os.fstat(stream.fileno())
        env = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        with logging_to(stream, form="auto", env=env) as say:
            say.debug("a")
            say.info("b")
            say.warning("c")
            say.error("d")
            say.critical("e")
    lines = path.read_text().splitlines()
    assert [line[:3] for line in lines] == ["<7>", "<6>", "<4>", "<3>", "<2>"]
    assert all("timestamp" not in json.loads(line[3:]) for line in lines)


def test_a_journal_variable_inherited_from_elsewhere_is_not_ours(tmp_path):
    with (tmp_path / "f").open("w") as stream, logging_to(stream, env={"JOURNAL_STREAM": "1:2"}) as say:
        say.info("a")
    assert (tmp_path / "f").read_text().startswith('{"timestamp"')


def test_for_the_journal_every_line_has_its_priority():
    assert log_render.for_journal(b"a\nb\n", "error") == b"<3>a\n<3>b\n"


# --- what may stand in it -------------------------------------------------------------------------


def test_fields_that_carry_content_are_dropped_also_deep_inside():
    out = Captured()
    with logging_to(out) as say:
        say.info(
            "x", text="my words", summary="s", data=b"d", line="l", payload={}, kept=1, nested={"text": "w", "n": 2}
        )
    [line] = out.lines
    assert "words" not in out.text
    assert {k: v for k, v in line.items() if k not in ("timestamp", "level", "event")} == {
        "kept": 1,
        "nested": {"n": 2},
    }


def test_long_values_are_cut():
    out = Captured()
    with logging_to(out) as say:
        say.info("x", detail="y" * 10_000)
    assert len(out.lines[0]["detail"]) == 300


def test_a_line_is_bounded_and_still_json():
    out = Captured()
    with logging_to(out) as say:
        say.info("state", status={f"k{n}": "v" * 250 for n in range(200)})
    [line] = out.lines
    assert (line["event"], line["cut"]) == ("state", True)


@pytest.mark.parametrize(
    "value", ["\udcff.jsonl", 2**70, Path("/x"), {1: 2}, {"a": {"b"}}, object(), float("nan"), b"\xff"]
)
def test_any_value_makes_a_line(value):
    out = Captured()
    with logging_to(out) as say:
        say.info("seen", value=value)
    assert out.lines[0]["event"] == "seen"
    assert log.dropped() == 0


def test_a_value_that_cannot_be_shown_costs_its_line_and_nothing_else():
    class Hostile:
        def __str__(self):
            raise RuntimeError("no")

    out = Captured()
    with logging_to(out) as say:
        say.info("bad", value=Hostile())
        say.info("good")
    assert [line["event"] for line in out.lines] == ["good"]
    assert log.dropped() == 1


def test_an_exception_keeps_its_place_and_loses_what_it_quotes():
    out = Captured()
    with logging_to(out) as say:
        try:
            int("the words of a person")
        except ValueError:
            say.exception("pass_failed", session="claude:1")
    text = out.lines[0]["exception"]
    assert text.startswith("ValueError: invalid literal for int() with base 10: '…'\n")
    assert "test_log.py:" in text
    assert "the words" not in out.text.replace("\\n", "")


def test_an_exception_given_as_a_value_is_shown_with_its_cause():
    out = Captured()
    try:
        try:
            raise OSError(28, "No space left on device")
        except OSError as error:
            raise RuntimeError("commit failed") from error
    except RuntimeError as error:
        caught = error
    with logging_to(out) as say:
        say.error("request_failed", exc_info=caught)
    text = out.lines[0]["exception"]
    assert text.startswith("RuntimeError: commit failed")
    assert "caused by OSError: [Errno 28] No space left on device" in text


# --- the libraries --------------------------------------------------------------------------------


def test_messages_of_libraries_come_in_cut_short():
    out = Captured()
    with logging_to(out, level="info"):
        logging.getLogger("apscheduler.scheduler").warning("Run time of job %s was missed", "x" * 1000)
        logging.getLogger("apscheduler.scheduler").info("not of interest")
    [line] = out.lines
    assert (line["event"], line["level"], line["logger"]) == ("library_message", "warning", "apscheduler.scheduler")
    assert line["detail"].startswith("Run time of job xxx")
    assert len(line["detail"]) == 300


def test_a_librarys_bad_message_does_no_harm():
    out = Captured()
    with logging_to(out) as say:
        [route] = [
            handler for handler in logging.getLogger().handlers if handler.__module__ == "sessiond.log.libraries"
        ]
        route.emit(logging.LogRecord("watchdog", logging.WARNING, "x.py", 1, "%d %d", ("x",), None))
        say.info("alive")
    assert [line["event"] for line in out.lines] == ["alive"]


@pytest.mark.fault(45)
def test_watchdogs_giant_warnings_are_cut_and_held_back_and_not_kept():
    out = Captured()
    module = {"__name__": "watchdog.observers.inotify_c", "__warningregistry__": {}}
    with logging_to(out, level="info"):
        for n in range(1000):
            text = f"watch {n} " + "{'a': 1}" * 5000
            warnings.warn_explicit(text, RuntimeWarning, "inotify_c.py", 450, module=module["__name__"], registry=module["__warningregistry__"])  # fmt: skip
    assert 0 < len(out.text) < 20_000
    assert out.lines[0]["category"] == "RuntimeWarning"
    kept = [key for key in module["__warningregistry__"] if key != "version"]
    assert kept == [], "each kept text would be tens of kilobytes for good"


def test_afterwards_warnings_go_where_they_went_before():
    before, handlers = warnings.showwarning, list(logging.getLogger().handlers)
    with logging_to(Captured()):
        assert warnings.showwarning is not before
    assert warnings.showwarning.__module__ == "warnings" or warnings.showwarning is before
    assert logging.getLogger().handlers == handlers


# --- the same again and again ---------------------------------------------------------------------


def test_the_same_event_is_held_back_and_counted():
    now = [0.0]
    limit = RateLimit(burst=3, per_seconds=10, clock=lambda: now[0])
    assert [limit.allow("a") for _ in range(5)] == [0, 0, 0, None, None]
    assert limit.allow("b") == 0
    now[0] = 9.9
    assert limit.allow("a") is None
    now[0] = 10.0
    assert limit.allow("a") == 3
    assert limit.allow("a") == 0


def test_many_different_events_do_not_fill_the_memory():
    limit = RateLimit()
    for n in range(5000):
        limit.allow(n)
    assert len(limit._windows) <= RateLimit.MAX_KEYS


def test_a_flood_of_one_event_leaves_others_alone():
    out = Captured()
    with logging_to(out) as say:
        for n in range(500):
            say.warning("record_rejected", offset=n)
        say.warning("source_gone")
    events = [line["event"] for line in out.lines]
    assert events.count("record_rejected") == 20
    assert events[-1] == "source_gone"


def test_what_was_held_back_is_told_with_the_next_one():
    now = [0.0]
    log._rate = RateLimit(burst=1, per_seconds=10, clock=lambda: now[0])
    out = Captured()
    with logging_to(out) as say:
        for _ in range(5):
            say.info("x")
        now[0] = 11.0
        say.info("x")
    assert [line.get("held_back") for line in out.lines] == [None, 4]


def test_debugging_is_never_held_back():
    out = Captured()
    with logging_to(out) as say:
        for _ in range(200):
            say.debug("line_read")
    assert len(out.lines) == 200


# --- a stream that is slow, stuck or gone ---------------------------------------------------------


@pytest.mark.fault(79)
def test_a_full_pipe_never_blocks_the_caller_and_recovers():
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as stream, logging_to(stream) as say:
        began = time.monotonic()
        for n in range(8000):
            say.debug("line_read", n=n, detail="x" * 250)
        assert time.monotonic() - began < 5.0
        assert log.dropped() > 0
        assert not log.flush(0.05)

        received = bytearray()
        reader = threading.Thread(target=lambda: received.extend(read_until(read_end, b"after_the_jam")), daemon=True)
        reader.start()
        assert log.flush(10.0)
        say.warning("after_the_jam")
        reader.join(10.0)
    os.close(read_end)
    lines = [json.loads(line) for line in received.decode().splitlines()]
    numbers = [line["n"] for line in lines if line["event"] == "line_read"]
    assert numbers == sorted(numbers)
    told = sum(line["lines"] for line in lines if line["event"] == "log_lines_dropped")
    assert told == log.dropped()
    assert len(numbers) + told == 8000


def read_until(fd: int, end: bytes) -> bytes:
    received = b""
    while end not in received:
        received += os.read(fd, 65_536)
    while not received.endswith(b"\n"):
        received += os.read(fd, 65_536)
    return received


@pytest.mark.fault(79)
def test_a_reader_that_went_away_costs_lines_and_nothing_else():
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as stream, logging_to(stream) as say:
        for _ in range(10):
            say.debug("x")
        assert log.flush(5.0)
        assert log.dropped() >= 10


def test_a_descriptor_closed_behind_our_back_is_never_written_to_again(tmp_path):
    """The number of a closed stderr is given to the next file that is opened: the store, say."""
    with (tmp_path / "log").open("w") as stream, logging_to(stream) as say:
        number = stream.fileno()
        stream.close()
        other = os.open(tmp_path / "store.db", os.O_RDWR | os.O_CREAT)
        try:
            assert other == number
            say.info("x")
            assert log.flush(5.0)
        finally:
            os.close(other)
    assert (tmp_path / "store.db").read_bytes() == b""
    assert '"event":"x"' in (tmp_path / "log").read_text()


def test_without_any_stderr_lines_are_counted(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with logging_to(None) as say:
        say.info("x")
    assert log.dropped() == 1


def test_a_nonblocking_stream_gets_every_byte():
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with os.fdopen(write_end, "w") as stream, logging_to(stream) as say:
        for n in range(1000):
            say.debug("x", n=n, detail="y" * 200)
        say.debug("the_end")
        received = read_until(read_end, b"the_end")
    os.close(read_end)
    assert len(received.splitlines()) == 1001


def test_the_queue_is_bounded():
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as stream:
        sink = Sink(stream)
        for _ in range(5000):
            sink.put(b"z" * 999 + b"\n")
        assert sink._waiting_bytes <= MAX_WAITING_BYTES
        assert sink.dropped >= 5000 - (MAX_WAITING_BYTES + 65_536 * 3) // 1000
        os.close(read_end)
        sink.close(5.0)


@pytest.mark.fault(79)
@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_a_process_with_a_useless_stderr_works_and_ends(redirect):
    code = (
        "import structlog; from sessiond import log; log.setup('info', 'json');"
        "[structlog.get_logger().info(f'x{n}') for n in range(100)];"
        "log.flush(); print(log.dropped())"
    )
    run = subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {redirect}', sys.executable, code], capture_output=True, text=True, cwd=ROOT, timeout=30
    )  # fmt: skip
    assert (run.returncode, run.stdout) == (0, "100\n")


def test_a_process_whose_reader_is_stuck_ends_all_the_same():
    code = (
        "import structlog; from sessiond import log; log.setup('debug', 'json');"
        "[structlog.get_logger().debug('x', detail='y' * 250) for n in range(2000)]"
    )
    run = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, cwd=ROOT)
    assert run.wait(timeout=30) == 0  # nobody reads the pipe
    run.stderr.close()


def test_the_last_words_of_a_process_are_written():
    code = "import structlog; from sessiond import log; log.setup('info', 'json'); structlog.get_logger().info('last')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert json.loads(run.stderr)["event"] == "last"
