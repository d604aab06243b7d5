"""Verbs, options, exit codes and the words of errors."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from .conftest import ROOT


def test_help_groups_the_verbs_and_gives_examples(sessiond):
    said = sessiond("--help")

    places = [
        said.out.index(word)
        for word in ("Ask:", "  status", "Keep:", "  restore", "Run:", "  config", "Upkeep:", "  ingest", "Examples:")
    ]
    assert said.code == 0
    assert places == sorted(places)


def test_no_verb_shows_the_help(sessiond):
    assert sessiond() == sessiond("--help")


@pytest.mark.parametrize(
    "verb",
    ["status", "health", "sessions", "ls", "show", "events", "search", "restore", "run", "reload", "ingest", "config"],
)
def test_every_verb_has_help_with_an_example(sessiond, verb):
    said = sessiond(verb, "--help")

    assert said.code == 0
    assert "Examples:\n  " in said.out


def test_version(sessiond):
    from sessiond import __version__

    assert sessiond("--version") == (0, f"sessiond {__version__}\n", "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["sttus"], "there is no verb sttus (did you mean status?)"),
        (["xyzzy"], "there is no verb xyzzy (see: sessiond --help)"),
        (["status", "--jsno"], "there is no option --jsno (did you mean --json?)"),
        (["--confg", "x", "status"], "there is no option --confg (did you mean --config?)"),
        (["config", "chek"], "there is no verb chek (did you mean check?)"),
        (["sessions", "--outcome", "sucess"], "--outcome is never sucess (did you mean success?)"),
        (["events", "x", "--kind", "edits"], "--kind is never edits (did you mean edit?)"),
        (["events", "x", "-C", "3"], "-C needs an event to look around (write UID#SEQ)"),
        (["restore"], "missing argument 'UID' (see: sessiond restore --help)"),
    ],
)
def test_a_wrong_call_is_one_line_with_a_way_out(sessiond, args, words):
    assert sessiond(*args) == (2, "", f"sessiond: {words}\n")


def test_a_time_that_is_none_says_what_to_write(sessiond):
    said = sessiond("sessions", "--since", "yestermorn")

    assert said.code == 2
    assert said.err.startswith('sessiond: --since: "yestermorn" is not a time (write "2h"')
    assert said.err.count("\n") == 1


def test_without_a_daemon_status_is_69(sessiond):
    said = sessiond("status")

    assert said.code == 69
    assert said.err.startswith("sessiond: the daemon is not running (")


def test_without_a_store_there_is_a_way_out(sessiond):
    said = sessiond("sessions")

    assert said.code == 1
    assert "sessiond run" in said.err
    assert said.err.count("\n") == 1


def test_a_broken_configuration_is_78_for_a_verb_that_reads(sessiond, journal):
    journal.write_config("[store]\npath = relative/store.db\n")
    said = sessiond("sessions")

    assert said.code == 78
    assert "config.toml, line 2" in said.err


def test_a_store_that_is_no_database_is_one_line(sessiond, journal):
    journal.paths.store.write_bytes(b"nonsense" * 1000)
    said = sessiond("sessions")

    assert said.code == 1
    assert said.err.splitlines()[-1].startswith("sessiond: the store cannot be read: ")


def test_a_closed_pipe_is_quiet(journal):
    argv = [sys.executable, "-m", "sessiond", "sessions", "--json"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=journal.env, cwd=ROOT)
    process.stdout.close()
    error = process.stderr.read()
    process.stderr.close()

    assert process.wait(30) == 0
    assert b"Traceback" not in error
    assert b"BrokenPipe" not in error


def test_control_c_is_quiet(lab, daemon):
    import threading

    asked, release = threading.Event(), threading.Event()

    def never(_):
        asked.set()
        release.wait(20)
        return {}

    with daemon(status=never):
        argv = [sys.executable, "-m", "sessiond", "status"]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=lab.env, cwd=ROOT)
        assert asked.wait(10)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=10)
        release.set()

    assert process.returncode == 130
    assert (out, error.strip()) == (b"", b"")
