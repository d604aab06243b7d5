"""Does a shell command run tests? The same answer for every agent, in time linear in the command's length.

The command is cut into simple commands the way a shell would (quotes, operators, here-documents), each is
stripped of what only wraps it (`timeout 60`, `env A=1`, `bash -lc '...'`, `uv run`), and what is left is
looked up in the tables of `_runners`. Words that merely mention a runner (`grep pytest`, a commit
message) stand in argument position and so never match.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sessiond.adapters._runners import (
    CONTAINERS,
    HINTS,
    INTERPRETERS,
    KEYWORDS,
    NOT_RUNNING,
    ONLY_NAMED_SCRIPTS,
    PYTHONS,
    RUN_WORDS,
    RUNNERS,
    SCRIPT_TOOLS,
    SHELLS,
    SUBCOMMANDS,
    TAKES_VALUE,
    TARGET_NAMES,
    TARGET_TOOLS,
    TEST_WORDS,
    WRAPPERS,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_CHARS = 20_000  # a longer command is a script pasted inline; its beginning tells enough
MAX_DEPTH = 4  # bash -c "bash -c '...'"
MAX_HEREDOCS = 16

_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]++|\\\r?\n)
      | (?P<redirect>&>>?|\d*+(?:<<<|<<-?|>>|>&|<&|>\||<>|>|<)(?:[ \t]*+[0-9-]?+(?=[\s;|)]|$))?+)
      | (?P<operator>\n|;+|&&|\|\||\|&?|&|\(|\)|`)
      | '(?P<single>[^']*+)'
      | "(?P<double>(?:[^"\\]++|\\.)*+)"
      | \\(?P<escaped>.)
      | (?P<comment>(?<![^\s;&|(])\#[^\n]*+)
      | (?P<plain>[^\s'"\\;&|()<>`]++|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PARTS = re.compile(r"[-_:./]")


def is_test_command(command: str | Sequence[str]) -> bool:
    """Whether running this command runs tests. A sequence is an argv, as some agents write it."""
    if isinstance(command, str):
        return _script_tests(command, MAX_DEPTH)
    words = [word[:MAX_CHARS] for word in command[:200] if isinstance(word, str)]
    return _words_test(words, MAX_DEPTH)


def _script_tests(script: str, depth: int) -> bool:
    script = script[:MAX_CHARS]
    if depth <= 0 or not any(hint in script for hint in HINTS):
        return False
    return any(_words_test(words, depth) for words in _simple_commands(_without_heredocs(script)))


def _without_heredocs(script: str) -> str:
    """The script less the bodies of its here-documents: text, not commands, and full of stray quotes."""
    kept: list[str] = []
    at = 0
    for _ in range(MAX_HEREDOCS):
        opening = _HEREDOC.search(script, at)
        if opening is None:
            break
        line_end = script.find("\n", opening.end())
        last_line = re.compile(rf"\n[ \t]*+{opening[2]}(?=[\s)]|$)")
        ending = last_line.search(script, line_end) if line_end >= 0 else None
        if ending is None:  # a shift or a quoted "<<", or a document cut off: leave the rest alone
            break
        kept.append(script[at:line_end])
        at = ending.end()
    kept.append(script[at:])
    return "".join(kept)


def _simple_commands(script: str) -> Iterator[list[str]]:
    words: list[str] = []
    word: list[str] | None = None
    skip_word = False  # the target of a redirection is not an argument
    for token in _TOKEN.finditer(script):
        group = token.lastgroup
        if group in ("single", "double", "escaped", "plain"):
            word = word if word is not None else []
            word.append(token[group])
            continue
        if word is not None:
            if not skip_word:
                words.append("".join(word))
            word, skip_word = None, False
        if group == "operator":
            yield words
            words, skip_word = [], False
        elif group == "redirect":
            skip_word = token[0][-1] in "<>&|"  # not `2>&1`, which brings its own target
    if word is not None and not skip_word:
        words.append("".join(word))
    yield words


def _words_test(words: Sequence[str], depth: int) -> bool:
    """Whether one simple command, already cut into words, runs tests."""
    at = 0
    while at < len(words) and (words[at] in KEYWORDS or _ASSIGNMENT.match(words[at])):
        at += 1
    words = words[at:]
    if not words or depth <= 0:
        return False
    name, arguments = _name(words[0]), words[1:]
    if name in SHELLS or name == "eval":
        return _shell_tests(name, arguments, depth)
    inner = _wrapped(name, arguments)
    if inner is not None and _words_test(inner, depth - 1):
        return True
    if not NOT_RUNNING.isdisjoint(arguments):
        return False
    return name in RUNNERS or _tool_tests(name, arguments, depth)


def _name(word: str) -> str:
    """The command's own name: `.venv/bin/pytest`, `jest@29` and `pytest.exe` are what they are called."""
    name = word.replace("\\", "/").rpartition("/")[2]
    name = name.removesuffix(".exe").removesuffix(".cmd").removesuffix(".bat")
    return name.partition("@")[0] or name


def _shell_tests(name: str, arguments: Sequence[str], depth: int) -> bool:
    if name == "eval":
        return _script_tests(" ".join(arguments), depth - 1)
    for at, argument in enumerate(arguments[:-1]):
        if not argument.startswith("-"):
            return False  # a script file; what it runs is not said
        if argument in ("-Command", "-command") or (argument[1:2] != "-" and argument.endswith("c")):
            return _script_tests(arguments[at + 1], depth - 1)
    return False


def _wrapped(name: str, arguments: Sequence[str]) -> Sequence[str] | None:
    """The command that this one runs for another, or None where it is no such wrapper."""
    if name in WRAPPERS:
        takes_value, own_words = WRAPPERS[name]
        return _skip_options(arguments, takes_value)[own_words:]
    if name in CONTAINERS:
        return _in_container(arguments)
    if name in RUN_WORDS:
        rest = _skip_options(arguments, TAKES_VALUE)
        if rest and rest[0] in RUN_WORDS[name]:
            module = name == "coverage" and "-m" in rest  # coverage run -m pytest
            return rest[rest.index("-m") + 1 :] if module else _skip_options(rest[1:], TAKES_VALUE)
    return None


def _in_container(arguments: Sequence[str]) -> Sequence[str] | None:
    for at, word in enumerate(arguments[:8]):
        if word in ("exec", "run"):
            return _skip_options(arguments[at + 1 :], TAKES_VALUE)[1:]  # less the container's name
    return None


def _skip_options(words: Sequence[str], takes_value: frozenset[str]) -> Sequence[str]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "--":
            return words[at + 1 :]
        at += 2 if words[at] in takes_value else 1
    return words[at:]


def _operands(words: Sequence[str]) -> Iterator[str]:
    values = (before in TAKES_VALUE for before in ("", *words))
    return (word for word, is_value in zip(words, values, strict=False) if not (is_value or word.startswith("-")))


def _tool_tests(name: str, arguments: Sequence[str], depth: int) -> bool:
    if name.startswith(PYTHONS) or name in INTERPRETERS:
        return _interpreter_tests(name, arguments, depth)
    if name in TARGET_TOOLS:
        return any(_is_test_name(word) for word in _operands(arguments))
    if arguments and arguments[0].startswith("+"):  # cargo +nightly test
        arguments = arguments[1:]
    rest = _skip_options(arguments, TAKES_VALUE)
    if not rest:
        return False
    if rest[0] in SUBCOMMANDS.get(name, ()):
        return True
    if name == "zig":
        return rest[0] == "build" and "test" in rest[1:]
    return name in SCRIPT_TOOLS and _script_runner_tests(name, rest)


def _script_runner_tests(name: str, rest: Sequence[str]) -> bool:
    """`npm run test:unit`, `yarn workspace web test`, `pnpm vitest`."""
    if name == "yarn" and rest[0] == "workspace":
        rest = rest[2:]
    named_run = bool(rest) and rest[0] in ("run", "run-script", "task")
    rest = _skip_options(rest[1:] if named_run else rest, TAKES_VALUE)
    if not rest or (not named_run and name in ONLY_NAMED_SCRIPTS):
        return False  # these know no script without `run`, except the subcommands above
    return _is_test_name(rest[0]) or _words_test(rest[:2], 1)


def _interpreter_tests(name: str, arguments: Sequence[str], depth: int) -> bool:
    if name == "node" and "--test" in arguments:
        return True
    for at, word in enumerate(arguments):
        if word == "-m" and name.startswith(PYTHONS):
            return _words_test(arguments[at + 1 :], depth - 1)
        if word in ("-c", "-e", "-r"):
            return False
        if not word.startswith("-") and (at == 0 or arguments[at - 1] not in ("-W", "-X")):
            return _words_test(arguments[at:], depth - 1)
    return False


def _is_test_name(word: str) -> bool:
    """A target or script called after tests: `test`, `test:unit`, `e2e-tests`, `:app:testDebugUnitTest`."""
    if "=" in word:
        return False
    if word in TARGET_NAMES:
        return True
    parts = [part for part in _PARTS.split(word[:100]) if part]
    if not parts:
        return False
    first, last = parts[0], parts[-1]
    is_camel_case = first[:4] == "test" and first[4:5].isupper()
    return is_camel_case or first in TEST_WORDS or last in TEST_WORDS or last.endswith(("Test", "Tests"))
