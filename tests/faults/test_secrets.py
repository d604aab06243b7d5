"""Point 8 of the matrix's issue, second half (P8): keys that stand in agents' files come out nowhere but where raw is promised.

Raw by design: the archive, the search index, `restore`'s files, `events --payload`; and what a cursor needs to go on in
the middle of a file (its path, the unfinished line, the adapter's own memory). Everything else is scanned.
"""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime

import click
import pytest

from lab import Lab, until
from sessiond.cli import main
from sessiond.cli.group import VERBS, cli
from sessiond.serve import client
from sessiond.store import evict
from sessiond.store.connect import rows
from tests.faults.planted import Keys, plant

CONFIG = '[log]\nlevel = "debug"\n[analyze]\nquiet_after = "0s"\noutcome_after = "1s"\n'
RAW_COLUMNS = {"_frame.data", "_outbox.data"} | {
    f"_source.{column}" for column in ("home", "path", "below", "pending", "carry", "seed")
}


class Screen(io.StringIO):
    """A terminal, as far as a verb can tell."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Asking:
    """Calls verbs in this process, and keeps every word they print and every line the daemon answers them."""

    def __init__(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: dict[str, str] = {}
        for name in [name for name in os.environ if name.startswith(("XDG_", "SESSIOND_", "CLAUDE", "CODEX", "GROK"))]:
            monkeypatch.delenv(name)
        for name, value in {**lab.env, "COLUMNS": "250", "TZ": "UTC"}.items():
            monkeypatch.setenv(name, value)
        real = client.Client._understand

        def heard(each: client.Client, line: bytes) -> dict:
            self.said["socket"] = self.said.get("socket", "") + line.decode()
            return real(each, line)

        monkeypatch.setattr(client.Client, "_understand", heard)

    def ask(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """The verb on a terminal, in a pipe, and as JSON where it can; what it said in the pipe."""
        ways = {"screen": (Screen, words), "pipe": (io.StringIO, words)}
        if any("--json" in each.opts for each in command_of(words).params):
            ways["json"] = (io.StringIO, (*words, "--json"))
        for way, (stream, argv) in ways.items():
            out, err = stream(), stream()
            with redirect_stdout(out), redirect_stderr(err):
                code = main(list(argv))
            text = out.getvalue() + err.getvalue()
            assert code in codes, (argv, code, text)
            self.said[f"{way}: {' '.join(words)}"] = text
        return self.said[f"pipe: {' '.join(words)}"]


def command_of(words: tuple[str, ...]) -> click.Command:
    found: click.Command = cli
    with click.Context(cli) as context:
        for word in words:
            if not isinstance(found, click.Group):
                break
            found = found.get_command(context, word) or found
    return found


def leaf_verbs() -> set[str]:
    """Every verb of the program's own list, those of a family one by one: a new one cannot be forgotten here."""
    with click.Context(cli) as context:
        commands = {name: cli.get_command(context, name) for name in VERBS}
    return {
        f"{name} {below}" if below else name
        for name, command in commands.items()
        for below in (command.commands if isinstance(command, click.Group) else [""])
    }


def questions(uids: list[str]) -> dict[str, list[list[str]]]:
    """How each verb that only reads is asked."""
    return {
        "status": [[]],
        "health": [["-v"]],
        "sessions": [["-a"], ["--changed-since", "0"], ["--active"]],
        "show": [[uid] for uid in uids],
        "events": [[uid, *more] for uid in uids for more in (["-a"], ["--visible"])] + [[f"{uids[0]}#3", "-C", "4"]],
        "search": [[word] for word in ("please", "deploy", "refused", "boom", "take", "wrote", "stream")],
        "cost": [["--by", by] for by in ("day", "model", "agent", "repo", "session")],
        "errors": [[], ["ConnectionError: no route"], ["boom"]],
        "patterns": [[]],
        "verify": [[]],
        "config path": [[]],
        "config check": [[]],
        "config show": [[]],
        "evict": [["--dry-run"]],
        "forget": [["--dry-run", *uids]],
    }


def doings(uids: list[str]) -> dict[str, list[list[str]]]:
    """How each verb that changes something is called."""
    return {
        "ingest": [[]],
        "analyze": [[]],
        "reindex": [[]],
        "pin": [[uids[0]]],
        "unpin": [[uids[0]]],
        "exclude": [["/nowhere"], ["--list"], ["--remove", "/nowhere"]],
        "pause": [["--for", "2h"]],
        "unpause": [[]],
        "reload": [[]],
        "restore": [],  # into a new folder each time: by itself
        "config init": [],  # there is a configuration: by itself
        "run": [],  # the daemon itself: its log, and its live screen on a terminal
    }


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def asking(lab, monkeypatch) -> Asking:
    return Asking(lab, monkeypatch)


def assert_silent(keys: Keys, said: dict[str, str]) -> None:
    leaks = {where: found for where, text in said.items() if (found := keys.leaks(text))}
    assert leaks == {}


def test_every_verb_is_asked_about_secrets():
    assert set(questions(["a"])) | set(doings(["a"])) == leaf_verbs()


def test_no_planted_key_comes_out_of_any_verb_reply_log_or_tier_2_text(lab, keys, asking):
    uids = plant(lab, keys)
    os.mkfifo(next((lab.claude / "projects").iterdir()) / "fifo.jsonl")
    with lab.daemon(config=CONFIG) as process:
        lab.ingest_through_daemon()
        for verb, calls in {**doings(uids), **questions(uids)}.items():
            for words in calls:
                codes = (0, 1) if verb in ("health", "exclude") else (0,)
                asking.ask(*verb.split(), *words, codes=codes)
        assert_asked_for_something(asking, uids)
        bad_configuration_is_told_without_its_value(lab, keys, asking, process)
        asking.said["raw requests"] = raw_requests(lab, keys)
        process.send_signal(signal.SIGUSR1)
        until(lambda: b'"event":"state"' in (lab.folder / "daemon.log").read_bytes())
    for number, uid in enumerate(uids):
        done = lab.cli("restore", uid, "--to", str(lab.folder / f"back{number}"), "--json")
        assert done.returncode == 0, done.stderr
        asking.said[f"restore {uid}"] = done.stdout + done.stderr
    spoil(next((lab.claude / "projects").glob("*/s1.jsonl")))
    assert "-w-[masked:" in asking.ask("verify", codes=(1,))
    let_go_of_everything(lab)
    for verb, calls in questions(uids).items():
        for words in calls:
            asking.ask(*verb.split(), *words, codes=(0, 1, 69))
    asking.said["live screen"] = live_screen(lab)
    asking.said["log"] = (lab.folder / "daemon.log").read_text()
    assert_silent(keys, asking.said)
    assert columns_with_keys(lab, keys) <= RAW_COLUMNS
    asking.ask("forget", *uids, "--yes", codes=(0, 1))  # 1: the first of three ways has done it
    assert_silent(keys, asking.said)


def assert_asked_for_something(asking: Asking, uids: list[str]) -> None:
    """Else nothing would be a pass: the masks stand where the keys stood."""
    for uid in uids:
        assert asking.said[f"pipe: show {uid}"].count("[masked:") >= 4
        assert asking.said[f"json: events {uid} -a"].count("[masked:") >= 4
    for words in ("sessions -a", "errors", "search boom", "search refused"):
        assert "[masked:" in asking.said[f"pipe: {words}"], words
        assert "[masked:" in asking.said[f"screen: {words}"], words
    assert "[masked:" in asking.said["socket"], "unknown record types are named in status"


def bad_configuration_is_told_without_its_value(
    lab: Lab, keys: Keys, asking: Asking, process: subprocess.Popen
) -> None:
    lab.write_config(f'{CONFIG}[watch]\nscan_interval = "{keys.token("configuration")}"\n')
    process.send_signal(signal.SIGHUP)
    until(lambda: lab.status()["config"]["error"])
    for words in (["status"], ["health", "-v"], ["config", "check"], ["reload"]):
        asking.ask(*words, codes=(0, 1, 78))
    assert "[masked:" in asking.said["pipe: config check"]
    lab.write_config(CONFIG)
    asking.ask("reload")


def raw_requests(lab: Lab, keys: Keys) -> str:
    """What the socket says to requests that hold a key themselves."""
    said = ""
    key = keys.token("request")
    for request in (
        {"jsonrpc": "2.0", "id": 1, "method": key},
        {"jsonrpc": "2.0", "id": 1, "method": "work", "params": {"verb": key}},
        {"jsonrpc": "2.0", "id": 1, "method": "work", "params": {"verb": "pin", "params": {"uids": [key]}}},
    ):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(lab.paths.socket))
            connection.settimeout(5)
            connection.sendall(json.dumps(request).encode() + b"\n")
            said += connection.recv(65536).decode()
    assert "unknown method" in said
    return said


def let_go_of_everything(lab: Lab) -> None:
    lab.analyze()
    with lab.upkeep() as upkeep:
        with lab.store() as db:
            found = evict.oldest(db, active_before="~")
        assert len(found) == 3
        for each in found:
            assert evict.let_go(upkeep._pipeline.writer, each.row, datetime.now(UTC), active_before="~")


def spoil(path) -> None:
    """Bytes that were read are others now, which `verify` names with the file's path."""
    with path.open("r+b") as file:
        file.write(b'{"x')


def columns_with_keys(lab: Lab, keys: Keys) -> set[str]:
    """The columns of the store, of whatever table, in which a key stands."""
    found = set()
    with lab.store() as db:
        tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY 1"
        for (table,) in rows(db, tables):
            for column, *values in columns(db, table):
                if any(keys.leaks(each) for each in values):
                    found.add(f"{table}.{column}")
    return found


def columns(db, table: str):
    for (name,) in rows(db, "SELECT name FROM pragma_table_info(?)", (table,)):
        yield (name, *(v for (v,) in rows(db, f'SELECT "{name}" FROM "{table}"') if isinstance(v, str | bytes)))


def live_screen(lab: Lab) -> str:
    """What `sessiond run` shows on a terminal."""
    near, far = pty.openpty()
    env = {**lab.env, "TERM": "xterm", "LANG": "C.UTF-8", "COLUMNS": "200", "LINES": "60"}
    process = subprocess.Popen(
        [sys.executable, "-m", "sessiond", "run"], stdin=far, stdout=far, stderr=far, env=env, start_new_session=True
    )
    os.close(far)
    pieces: list[bytes] = []
    reader = threading.Thread(target=read_all, args=(near, pieces))
    reader.start()
    try:
        until(lambda: b"is ready" in b"".join(pieces) or b"degraded" in b"".join(pieces), what="a picture")
    finally:
        process.terminate()
        process.wait(10)
        reader.join(10)
        os.close(near)
    return b"".join(pieces).decode()


def read_all(fd: int, pieces: list[bytes]) -> None:
    try:
        while piece := os.read(fd, 65536):
            pieces.append(piece)
    except OSError:  # how Linux says that the other end is closed
        return
