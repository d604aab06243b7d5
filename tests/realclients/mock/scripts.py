"""What the model answers: a script is a list of steps, a step a list of blocks. The prompt names script, number, folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from realclients.mock.wires.shape import Turn

# U+2028 is legal inside JSON strings, and ends a line for readers that split by str.splitlines().
ODD = 'naïve café, 日本語, emoji 🧪, RTL שלום, line separator \u2028 here, tab\there, quote " and \\ slash'
STARTED = "started"  # the file a long tool call makes, so that it is killed while it runs and not by a guess
_MARK = re.compile(r"\(script: ([a-z]+), number (\d+), folder ([^\s)]+)\)")


@dataclass(frozen=True)
class Say:
    text: str
    stall_seconds: float = 0.0


@dataclass(frozen=True)
class Think:
    text: str


@dataclass(frozen=True)
class Call:
    """A tool call, by what it does: the client's own tool is looked up among those it offers."""

    action: str  # shell | write | read | edit | delegate | wait
    arguments: Mapping[str, str] = field(default_factory=dict)
    is_failing: bool = False
    is_test: bool = False


@dataclass(frozen=True)
class Refuse:
    """An API error, so many times; then the rest of the step."""

    status: int
    times: int


Block = Say | Think | Call | Refuse
Step = Sequence[Block]


@dataclass(frozen=True)
class Place:
    """Where in which script a conversation is."""

    script: str
    number: int
    folder: str
    step: int
    history: tuple[int, ...]  # the numbers of all prompts in the conversation, this one last


def prompt(words: str, script: str, number: int, folder: str) -> str:
    return f"{words} (script: {script}, number {number}, folder {folder})"


def locate(turns: Sequence[Turn]) -> Place | None:
    """None: no prompt of ours; the client asks for itself (a title, a summary)."""
    found = [
        (at, mark)
        for at, turn in enumerate(turns)
        if turn.role == "user" and not turn.is_result
        for mark in _MARK.finditer(turn.text)
    ]
    if not found:
        return None
    at, mark = found[-1]
    numbers = dict.fromkeys(int(each[2]) for _, each in found)
    return Place(mark[1], int(mark[2]), mark[3], _answers(turns[at + 1 :]), tuple(numbers))


def _answers(turns: Sequence[Turn]) -> int:
    """How often the model spoke: what it says in one go is one answer, tool results stand between answers."""
    steps, before = 0, ""
    for turn in turns:
        now = "answer" if turn.role == "assistant" else "result" if turn.is_result else before
        steps += now == "answer" and before != "answer"
        before = now
    return steps


def steps_of(place: Place) -> Sequence[Step]:
    return _SCRIPTS[place.script](place.number, place.folder)


def _plain(number: int, _folder: str) -> Sequence[Step]:
    return [[Think(f"A short reply to prompt {number} will do."), Say(f"Here is reply {number}. {ODD}")]]


def _tools(number: int, folder: str) -> Sequence[Step]:
    path = f"{folder}/area_{number}.py"
    body = f"def area(w, h):\n    return w * h\n\n\nprint(area({number}, 3))\n"
    return [
        [Think(f"I look around first. {ODD}"), Say("I'll look at the folder first."), _shell("ls -la && pwd")],
        [Call("write", {"path": path, "content": body})],
        [Call("read", {"path": path})],
        [Say("Now a small edit."), Call("edit", {"path": path, "old": "w * h", "new": "abs(w * h)"})],
        [_shell(f"python3 {path}")],
        [Say(f"Done: it prints {number * 3}. {ODD}")],
    ]


def _fail(number: int, folder: str) -> Sequence[Step]:
    return [
        [Say("Running the check."), _shell("echo 'some output'; echo 'to stderr' >&2; exit 3", is_failing=True)],
        [_shell(f"python3 -m unittest no_such_case_{number}", is_failing=True, is_test=True)],
        [Call("read", {"path": f"{folder}/missing_{number}.txt"}, is_failing=True)],
        [Say(f"All of these failed, as prompt {number} wanted.")],
    ]


def _retry(number: int, _folder: str) -> Sequence[Step]:
    return [[Refuse(500, 1), Say(f"After a server error: reply {number}.")]]


def _fatal(_number: int, _folder: str) -> Sequence[Step]:
    return [[Refuse(400, 1000), Say("never sent")]]


def _task(number: int, folder: str) -> Sequence[Step]:
    wanted = prompt("Count the files and report.", "sub", number, folder)
    return [
        [Say("I'll delegate this."), Call("delegate", {"prompt": wanted, "description": "Count the files"})],
        [Call("wait")],
        [Say(f"The sub-agent has reported to prompt {number}.")],
    ]


def _sub(number: int, _folder: str) -> Sequence[Step]:
    return [[Think("A small job."), _shell("ls | wc -l")], [Say(f"Counted, for prompt {number}.")]]


def _hang(number: int, folder: str) -> Sequence[Step]:
    return [
        [Say("This takes a while."), _shell(f"touch {folder}/{STARTED}; sleep 20; echo finished")],
        [Say(f"It finished, prompt {number}.")],
    ]


def _stall(number: int, _folder: str) -> Sequence[Step]:
    return [[Say(f"This answer to prompt {number} stops half-way, and nobody will ever hear its end.", 20.0)]]


def _shell(command: str, *, is_failing: bool = False, is_test: bool = False) -> Call:
    return Call("shell", {"command": command, "description": "Run a command"}, is_failing, is_test)


_SCRIPTS = {
    "plain": _plain,
    "tools": _tools,
    "fail": _fail,
    "retry": _retry,
    "fatal": _fatal,
    "task": _task,
    "sub": _sub,
    "hang": _hang,
    "stall": _stall,
}
