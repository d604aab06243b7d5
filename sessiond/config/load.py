"""TOML files in, one frozen Config out; or a ConfigError that names file, key, value and what to write instead."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from sessiond.config import files
from sessiond.config.docs import known_keys
from sessiond.config.files import Problem
from sessiond.config.settings import MIB, Config
from sessiond.paths import shown
from sessiond.units import format_size

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from pydantic_core import ErrorDetails

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Loaded:
    config: Config
    path: Path | None  # the main file, where there is one
    files: tuple[Path, ...]  # all that were read, in order
    drop_ins: Path  # where `config set` writes
    origins: dict[str, str]  # dotted key -> the file that set it, or "default"
    warnings: tuple[str, ...]


def load(
    config_file: Path | None,
    env: Mapping[str, str],
    flavors: Collection[str],
    *,
    system_dir: Path | None = None,
) -> Loaded:
    """The configuration of this user. A mistake is a ConfigError with a line for each; nothing is half applied."""
    merged = files.read(config_file, env, system_dir)
    try:
        config = Config.model_validate(merged.table, context={"env": env})
    except ValidationError as error:
        files.raise_all(_Mistake(each, merged, env).problem() for each in error.errors())
        raise  # not reached: a ValidationError has at least one error
    main = merged.located.main
    return Loaded(
        config=config,
        path=main if main in merged.files else None,
        files=tuple(merged.files),
        drop_ins=merged.located.drop_ins,
        origins=_origins(config, merged),
        warnings=tuple(_warnings(config, flavors)),
    )


def values_of(config: Config) -> dict[str, Any]:
    """Dotted key -> value, as one would write it in the file."""
    return dict(_flat(config.model_dump(mode="json")))


def _flat(table: dict[str, Any], at: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in table.items():
        key = at + quoted(name)
        pairs += _flat(value, key + ".") if isinstance(value, dict) else [(key, value)]
    return pairs


def quoted(name: str) -> str:
    """One part of a dotted key as TOML wants it."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _origins(config: Config, merged: files.Merged) -> dict[str, str]:
    found = {".".join(map(quoted, key)): str(path) for key, path in merged.origins.items()}
    # The keys of [domains] are paths with `~` filled in by now: look them up in the order they were written.
    written = [f"domains.{quoted(repo)}" for repo in merged.table.get("domains", {})]
    as_written = dict(zip((f"domains.{quoted(repo)}" for repo in config.domains), written, strict=False))
    return {key: found.get(as_written.get(key, key), DEFAULT) for key in values_of(config)}


def _warnings(config: Config, flavors: Collection[str]) -> list[str]:
    said = []
    for flavor in config.sources:
        if flavor not in flavors:
            near = difflib.get_close_matches(flavor, flavors, n=1)
            hint = f"did you mean {near[0]}?" if near else f"installed are {', '.join(sorted(flavors)) or 'none'}"
            said.append(f"sources.{quoted(flavor)} names no installed agent ({hint})")
    cap = config.retention.soft_cap
    if cap is not None and cap < 16 * MIB:
        meant = (
            f'a plain number is bytes; did you mean "{cap}GiB"?' if cap < 4096 else "little but digests will be kept"
        )
        said.append(f"retention.soft_cap is only {format_size(cap)} ({meant})")
    return said


class _Mistake:
    """One of pydantic's findings, in words for the person who wrote the file."""

    def __init__(self, error: ErrorDetails, merged: files.Merged, env: Mapping[str, str]) -> None:
        self.error = error
        self.key = tuple(str(part) for part in error["loc"] if isinstance(part, str))
        self.dotted = ".".join(map(quoted, self.key))
        path = next(
            (merged.origins[self.key[:n]] for n in range(len(self.key), 0, -1) if self.key[:n] in merged.origins), None
        )
        self.file = shown(path or merged.located.main, env)

    def problem(self) -> Problem:
        if self.error["type"] == "extra_forbidden":
            return self._unknown_key()
        fact, _, hint = self._sentence().partition("; ")
        if fact.startswith(f"{self.dotted}."):  # a finding about two keys names both itself
            return Problem(f"{fact}, in {self.file}", hint)
        return Problem(f"{self.dotted} in {self.file}: {fact}", hint or None)

    def _sentence(self) -> str:
        value, context = _shown_value(self.error["input"]), self.error.get("ctx", {})
        match self.error["type"]:
            case "value_error":
                return str(context["error"])
            case "literal_error":
                allowed = str(context["expected"]).replace("'", '"')
                return f"{value} is not one of its values; write {allowed}"
            case "bool_type":
                return f"{value} is neither true nor false; write true or false, without quotes"
            case "int_type":
                return f"{value} is not a whole number; write one without quotes"
            case "greater_than_equal":
                return f"{value} is too small; write {context['ge']} or more"
            case "less_than_equal":
                return f"{value} is too large; write {context['le']} or less"
            case "string_type":
                return f"{value} is not text; write it in quotes"
            case "model_type" | "dict_type":
                return f"{value} is not a section; write [{self.dotted}] and its keys on the lines below"
        return f"{value}: {self.error['msg']}"

    def _unknown_key(self) -> Problem:
        is_section = isinstance(self.error["input"], dict)
        fact = f"{self.dotted} is not a {'section' if is_section else 'key'} in {self.file}"
        near = _nearest(self.key, known_keys())
        if near:
            return Problem(fact, f"did you mean {near}?")
        inside = [key.rpartition(".")[2] for key in known_keys() if _same_section(key, self.key)]
        return Problem(fact, f"known here: {', '.join(inside)}" if inside else None)


def _same_section(known: str, key: tuple[str, ...]) -> bool:
    parts = known.split(".")
    return len(parts) == len(key) and all(a in (b, "<flavor>") for a, b in zip(parts[:-1], key[:-1], strict=True))


def _nearest(key: tuple[str, ...], known: Collection[str]) -> str | None:
    """The key that was probably meant: one beside it, else one of the same name elsewhere, else one alike."""
    beside = {each.rpartition(".")[2]: each for each in known if _same_section(each, key)}
    if match := difflib.get_close_matches(key[-1], beside, n=1, cutoff=0.6):
        found = beside[match[0]]
        return found.replace("<flavor>", key[1]) if len(key) > 1 else found
    same_name = [each for each in known if each.rpartition(".")[2] == key[-1]]
    alike = difflib.get_close_matches(".".join(key), known, n=1, cutoff=0.75)
    return same_name[0] if len(same_name) == 1 else alike[0] if alike else None


def _shown_value(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):  # a TOML date
        text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
