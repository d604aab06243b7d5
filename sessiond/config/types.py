"""What a value in the configuration may be, and the sentence for one that may not.

Each type reads what people write (`soft_cap = "4GiB"`) and writes it back the same way. A sentence has the
form "what is wrong; what to write instead".
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, ValidationInfo

from sessiond.config.exclusion import check_glob
from sessiond.mask.own import too_slow
from sessiond.paths import environment, expand
from sessiond.units import (
    SIZE_HELP,
    SPAN_HELP,
    parse_duration,
    parse_size,
    parse_span,
    write_duration,
    write_size,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


MAX_CHUNK = 64 * 2**20


class Section(BaseModel):
    """A table of the file. Strict: `enabled = "yes"` is a mistake to name, not to guess at."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Percent:
    number: float

    def of(self, size: int) -> int:
        return int(size * self.number / 100)

    def __str__(self) -> str:
        return f"{self.number:g}%"


def env_of(info: ValidationInfo) -> Mapping[str, str]:
    return info.context["env"] if info.context else environment()


def _size(value: object) -> int:
    size = parse_size(value)
    if size == 0:
        raise ValueError(f"{value} is nothing; {SIZE_HELP}")
    return size


def _chunk_size(value: object) -> int:
    size = _size(value)
    if size > MAX_CHUNK:
        raise ValueError(f"{value} is too much to hold in memory at a time; write {write_size(MAX_CHUNK)} or less")
    return size


def _size_or_auto(value: object) -> int | None:
    return None if value == "auto" else _with_auto(_size, value)


def _room_or_auto(value: object) -> int | None:
    return None if value == "auto" else _with_auto(parse_size, value)


def _with_auto(parse: Callable[[object], int], value: object) -> int:
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f'{error}, or "auto"') from None


def _low_water(value: object) -> Percent | int:
    percent = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*", value) if isinstance(value, str) else None
    if percent is None:
        try:
            return _size(value)
        except ValueError as error:
            raise ValueError(f'{error}, or a share of soft_cap such as "80%"') from None
    if not 0 < float(percent[1]) < 100:
        raise ValueError(f'"{value}" is not between 0% and 100%; write a share of soft_cap such as "80%"')
    return Percent(float(percent[1]))


def _interval(value: object) -> timedelta:
    span = parse_span(value)
    if span < timedelta(milliseconds=10):
        raise ValueError(f'"{value}" is too often; write "10ms" or more')
    return span


def _max_age(value: object) -> timedelta | None:
    try:
        span = parse_duration(value)
    except ValueError as error:
        raise ValueError(f'{error}, or "off"') from None
    if span == timedelta(0):
        raise ValueError(f'"{value}" would evict everything at once; {SPAN_HELP}, or "off"')
    return span


def _path_or_auto(value: object, info: ValidationInfo) -> Path | None:
    return None if value == "auto" else _path(value, info, 'or "auto"')


def _path(value: object, info: ValidationInfo, also: str = "") -> Path:
    if not isinstance(value, str | Path):
        raise ValueError(f"{value} is not a path; write an absolute path in quotes {also}".strip())
    path = expand(str(value), env_of(info))
    if not path.is_absolute():
        # Relative to what? The service and the shell would not agree.
        raise ValueError(f'"{value}" is not an absolute path; begin with / or ~ {also}'.strip())
    return path


def _roots(value: object, info: ValidationInfo) -> tuple[Path, ...] | None:
    if value == "auto":
        return None
    if not isinstance(value, list | tuple):
        raise ValueError(f'{value!r} is not a list; write ["/path", "~/path"], [] for none, or "auto"')
    return tuple(_path(each, info) for each in value)


def _glob(value: object, info: ValidationInfo) -> str:
    if not isinstance(value, str):
        raise ValueError(f'{value} is not a path pattern; write it in quotes, such as "~/private/**"')
    return check_glob(value, env_of(info))


def _regex(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value} is not a pattern; write a regular expression in quotes")
    try:
        with warnings.catch_warnings(action="ignore"):
            empty = re.compile(value).search("")
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"'{value}' is not a regular expression: {error}; see Python's re module") from None
    if empty:
        raise ValueError(f"'{value}' matches the empty text, so it would mask everywhere; make it match something")
    if slow := too_slow(value):  # the daemon would stand still in the middle of a match
        raise ValueError(f"'{value}' {slow}; let no repeat stand within another")
    return value


def _paths(value: object, info: ValidationInfo) -> tuple[str, ...]:
    return tuple(_glob(each, info) for each in _listed(value, '["~/private/**"]'))


def _regexes(value: object) -> tuple[str, ...]:
    return tuple(_regex(each) for each in _listed(value, "['ACME-[0-9]{6}']"))


def _listed(value: object, example: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is not a list; write {example}")
    return value


def _write_room(size: int | None) -> str:
    return "auto" if size is None else write_size(size)


def _write_low_water(value: Percent | int) -> str:
    return write_size(value) if isinstance(value, int) else str(value)


def _write_roots(roots: tuple[Path, ...] | None) -> Any:
    return "auto" if roots is None else [str(root) for root in roots]


def _written(write: Callable[[Any], Any]) -> PlainSerializer:
    return PlainSerializer(write, return_type=Any)


Size = Annotated[int, PlainValidator(_size), _written(write_size)]
ChunkSize = Annotated[int, PlainValidator(_chunk_size), _written(write_size)]
SizeOrAuto = Annotated[int | None, PlainValidator(_size_or_auto), _written(_write_room)]
RoomOrAuto = Annotated[int | None, PlainValidator(_room_or_auto), _written(_write_room)]  # 0 is allowed
LowWater = Annotated[Percent | int, PlainValidator(_low_water), _written(_write_low_water)]
Span = Annotated[timedelta, PlainValidator(parse_span), _written(write_duration)]  # 0 is allowed
Interval = Annotated[timedelta, PlainValidator(_interval), _written(write_duration)]
MaxAge = Annotated[timedelta | None, PlainValidator(_max_age), _written(write_duration)]
PathOrAuto = Annotated[Path | None, PlainValidator(_path_or_auto), _written(lambda path: str(path or "auto"))]
Roots = Annotated[tuple[Path, ...] | None, PlainValidator(_roots), _written(_write_roots)]
Globs = Annotated[tuple[str, ...], PlainValidator(_paths), _written(list)]
Regexes = Annotated[tuple[str, ...], PlainValidator(_regexes), _written(list)]
