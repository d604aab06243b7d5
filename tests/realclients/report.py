"""What came of it: a table over the clients, and every check that went wrong, in full."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from realclients.judge import add
from realclients.mock.wires.shape import Tokens
from realclients.session import Outcome

COLUMNS = ("client", "version", "scenarios", "checks", "events", "tokens", "visible", "new home", "restored", "resumed")


@dataclass
class Judged:
    """One client. `skipped` says why it did not run at all."""

    flavor: str
    version: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: str | None = None
    unknown: dict[str, int] = field(default_factory=dict)  # record types that its adapter does not know
    rejected: int = 0
    refused: list[str] = field(default_factory=list)  # what it asked for outside of loopback

    @property
    def is_right(self) -> bool:
        return not self.rejected and not any(outcome.wrong for outcome in self.outcomes)


def print_report(judged: Sequence[Judged]) -> None:
    ran = [each for each in judged if each.skipped is None]
    print("\n" + "\n".join(_table([COLUMNS, *(_row(each) for each in ran)])))
    print("\nevents, tokens: found/served (prompts, answers, thinking, calls; all tokens added up)")
    print(
        "visible: the client's write -> store, median/p99/max (writes); new home: the same in an agent's first session"
    )
    for each in judged:
        for line in _remarks(each):
            print(f"{each.flavor}: {line}")


def print_outcome(flavor: str, outcome: Outcome) -> None:
    wrong = len(outcome.wrong)
    verdict = "right" if not wrong else f"{wrong} wrong"
    print(
        f"  {flavor} {outcome.scenario}: {len(outcome.checks)} checks, {verdict}, {outcome.seconds:.1f} s", flush=True
    )
    for check in outcome.wrong:
        print(f"    {check.name}: expected {check.expected}, found {check.found}", flush=True)


def _row(judged: Judged) -> tuple[str, ...]:
    outcomes = judged.outcomes
    checks = [check for outcome in outcomes for check in outcome.checks]
    stored = [each for outcome in outcomes for each in outcome.stored]
    found = [outcome.found for outcome in outcomes if outcome.found is not None]
    return (
        judged.flavor,
        judged.version,
        f"{sum(not outcome.wrong for outcome in outcomes)}/{len(outcomes)}",
        f"{sum(check.is_right for check in checks)}/{len(checks)}",
        "/".join(str(sum(numbers)) for numbers in zip(*(outcome.counted for outcome in outcomes), strict=True)),
        f"{_sum(each.tokens for each in found)}/{_sum(outcome.served for outcome in outcomes)}",
        _latency([each.seconds for each in stored if not each.is_in_new_home]),
        _latency([each.seconds for each in stored if each.is_in_new_home]),
        _share(outcome.is_restored for outcome in outcomes),
        _share(outcome.is_resumed for outcome in outcomes),
    )


def _sum(tokens: Iterable[Tokens]) -> int:
    total = add(tokens)
    return total.input + total.output + total.cache_read + total.cache_write


def _latency(seconds: Sequence[float]) -> str:
    if len(seconds) < 2:
        return "-"
    p99 = statistics.quantiles(seconds, n=100, method="inclusive")[98]
    numbers = "/".join(f"{each * 1000:.0f}" for each in (statistics.median(seconds), p99, max(seconds)))
    return f"{numbers} ms ({len(seconds)})"


def _share(answers: Iterable[bool | None]) -> str:
    asked = [answer for answer in answers if answer is not None]
    return f"{sum(asked)}/{len(asked)}" if asked else "-"


def _remarks(judged: Judged) -> Iterable[str]:
    if judged.skipped is not None:
        yield f"skipped: {judged.skipped}"
    for outcome in judged.outcomes:
        for check in outcome.wrong:
            yield f"{outcome.scenario}: {check.name}: expected {check.expected}, found {check.found}"
    if judged.rejected:
        yield f"{judged.rejected} lines rejected"
    if judged.unknown:
        yield "record types unknown to its adapter: " + ", ".join(f"{k} ({v})" for k, v in judged.unknown.items())
    if judged.refused:
        yield "asked for the outside, and was refused: " + ", ".join(sorted(set(judged.refused)))


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
