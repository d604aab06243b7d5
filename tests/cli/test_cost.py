"""`cost`: every token once, priced by the installed list alone, in the days of the person who asks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from genai_prices import data, types

from sessiond.cli import prices as priced
from sessiond.cli.prices import PriceList
from sessiond.store.spent import Tokens

from .conftest import BLOG, ROOT, SHOP, _repo, write_session
from .test_asking import ANSI

OPUS, SONNET, MADE_UP = "claude-opus-4-7", "claude-sonnet-4-5-20250929", "glm-9-imaginary"
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def said(model: str | None, given: int = 0, answered: int = 0, read: int = 0, written: int = 0) -> dict:
    said.number += 1  # every response has a name of its own
    usage = {
        "input_tokens": given, "output_tokens": answered,
        "cache_read_input_tokens": read, "cache_creation_input_tokens": written,
    }  # fmt: skip
    body = {"id": f"m{said.number}", "role": "assistant", "model": model, "content": [], "usage": usage}
    return {"type": "assistant", "message": {**body, "content": [{"type": "text", "text": "ok"}]}}


said.number = 0


@pytest.fixture
def spend(lab):
    """`spend((ts, said(...)), ...)`: responses of one session, taken in."""

    def call(*records: tuple[str | None, dict], session: str = SHOP, repo: str = "shop") -> None:
        write_session(lab, session, _repo(lab, repo), list(records))
        lab.ingest()

    return call


@pytest.fixture
def ledger(spend, lab):
    """Two sessions, three models, one of which nobody has a price for."""
    spend(
        ("2026-01-02T10:00:00.000Z", said(OPUS, 1000, 200, 30_000, 4000)),
        ("2026-01-03T10:00:00.000Z", said(SONNET, 500, 100)),
        ("2026-01-03T10:01:00.000Z", said(MADE_UP, 10_000, 2345)),
    )
    spend(("2026-01-03T11:00:00.000Z", said(OPUS, 100, 20)), session=BLOG, repo="blog")
    return lab


def listed(provider: str, model: str) -> types.ModelInfo:
    models = next(each.models for each in data.providers if each.id == provider)
    return next(each for each in models if each.id == model)


def by_hand(prices: types.ModelPrice, given: int, answered: int, read: int = 0, written: int = 0) -> float:
    """From the raw data: dollars for a million of each."""
    total = (
        given * prices.input_mtok
        + answered * prices.output_mtok
        + read * (prices.cache_read_mtok or 0)
        + written * (prices.cache_write_mtok or 0)
    )
    return float(total / Decimal(1_000_000))


def test_days_are_listed_newest_first_with_their_total(sessiond, ledger):
    opus, sonnet = listed("anthropic", OPUS).prices, PriceList().rate(SONNET, NOON, 0)
    first = by_hand(opus, 1000, 200, 30_000, 4000)
    second = by_hand(opus, 100, 20) + float(sonnet.usd(Tokens(500, 100)))

    said_ = sessiond("cost")

    lines = [line.split() for line in said_.out.splitlines()]
    assert said_.code == 0
    assert lines[:5] == [
        ["DAY", "INPUT", "OUTPUT", "CACHE", "READ", "CACHE", "WRITE", "USD", "SESSIONS"],
        ["2026-01-03", "10600", "2465", "0", "0", f"{second:.6f}", "2"],
        ["2026-01-02", "1000", "200", "30000", "4000", f"{first:.6f}", "1"],
        ["total", "11600", "2665", "30000", "4000", f"{first + second:.6f}", "2"],
        ["unpriced", "10000", "2345", "0", "0", "-", "-"],
    ]
    assert said_.out.splitlines()[5] == f"unpriced: 12,345 tokens of {MADE_UP}"
    assert said_.out.splitlines()[6].startswith(f"USD at API prices of {PriceList().as_of()} (genai-prices ")
    assert first == pytest.approx(0.005 + 0.005 + 0.015 + 0.025)  # 5, 25, 0.5 and 6.25 dollars a million


def test_json_is_a_bare_array_with_its_fields(sessiond, ledger):
    newest, _ = sessiond("cost", "--json").json

    assert newest.pop("usd") > 0
    assert newest == {
        "by": "day", "key": "2026-01-03", "input_tokens": 10_600, "output_tokens": 2465, "cache_read_tokens": 0,
        "cache_write_tokens": 0, "unpriced_tokens": 12_345, "unpriced_models": [MADE_UP], "sessions": 2,
        "prices_as_of": PriceList().as_of().isoformat(),
    }  # fmt: skip


def test_by_model_a_model_without_a_price_has_a_row_of_its_own(sessiond, ledger, spend):
    spend(("2026-01-04T10:00:00.000Z", said(None, 7, 3)), session="a3f9c2d1-2000-4000-8000-000000000003")

    rows = sessiond("cost", "--by", "model", "--json").json

    assert [(row["key"], row["usd"] is None, row["unpriced_tokens"], row["unpriced_models"]) for row in rows] == [
        (OPUS, False, 0, []),
        (SONNET, False, 0, []),
        (MADE_UP, True, 12_345, [MADE_UP]),
        (None, True, 10, [None]),
    ]
    lines = sessiond("cost", "--by", "model").out.splitlines()
    assert lines[3].startswith(MADE_UP)
    assert lines[4].startswith("(no model)")
    assert lines[-2] == f"unpriced: 12,355 tokens of {MADE_UP}, (no model)"


@pytest.mark.parametrize(
    ("by", "keys"),
    [
        ("day", ["2026-01-03", "2026-01-02"]),
        ("week", ["2026-W01"]),
        ("month", ["2026-01"]),
        ("model", [OPUS, SONNET, MADE_UP]),
        ("agent", ["claude"]),
        ("repo", ["shop", "blog"]),
        ("session", [f"claude:{SHOP}", f"claude:{BLOG}"]),
    ],
)
def test_every_grouping_holds_every_token(sessiond, ledger, by, keys):
    rows = sessiond("cost", "--by", by, "--json").json

    assert [row["key"].rpartition("/")[2] for row in rows] == keys
    assert sum(row["input_tokens"] for row in rows) == 11_600
    assert sum(row["output_tokens"] for row in rows) == 2665
    assert sum(row["cache_read_tokens"] + row["cache_write_tokens"] for row in rows) == 34_000
    assert sum(row["unpriced_tokens"] for row in rows) == 12_345


@pytest.mark.parametrize(
    ("args", "tokens"),
    [
        (["--since", "2026-01-03"], 13_065),
        (["--until", "2026-01-03"], 35_200),
        (["--since", "2026-01-03T10:01", "--until", "2026-01-03T10:02"], 12_345),
        (["--model", "opus"], 35_320),
        (["--model", "sonnet", "--model", "GLM"], 12_945),
        (["--model", "nothing-like-it"], 0),
        (["--repo", "blog"], 120),
        (["--agent", "codex"], 0),
    ],
)
def test_responses_can_be_chosen(sessiond, ledger, args, tokens):
    rows = sessiond("cost", "--json", *args).json

    names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    assert sum(row[name] for row in rows for name in names) == tokens


def test_what_the_limit_leaves_out_is_summed_in_one_row(sessiond, ledger):
    lines = [line.split() for line in sessiond("cost", "-n", "1").out.splitlines()]

    assert [line[0] for line in lines[1:5]] == ["2026-01-03", "1", "total", "unpriced"]
    assert lines[2][:4] == ["1", "more", "1000", "200"]
    assert [row["key"] for row in sessiond("cost", "-n", "1", "--json").json] == ["2026-01-03"]


def test_nothing_spent_is_no_failure(sessiond, ledger):
    said_ = sessiond("cost", "--repo", "nowhere")

    assert (said_.code, said_.out) == (0, "")
    assert said_.err.startswith("nothing was spent\n")
    assert sessiond("cost", "--repo", "nowhere", "--json").json == []


def test_a_wrong_grouping_is_a_usage_error(sessiond, ledger):
    assert sessiond("cost", "--by", "fortnight").code == 2


@pytest.mark.parametrize("by", ["day", "model", "session", "repo"])
def test_the_table_fits_the_terminal(screen, ledger, by):
    for width in (40, 80, 160):
        lines = ANSI.sub("", screen("cost", "--by", by, width=width)).splitlines()
        table = [line for line in lines if not line.startswith(("unpriced:", "USD at"))]
        assert all(len(line) <= width for line in table)
        assert "USD" in table[0]


def test_a_screen_shows_bars_and_what_is_at_least_so_much(screen, ledger):
    lines = ANSI.sub("", screen("cost", "--by", "agent", width=80)).splitlines()
    assert lines[1].endswith("████████")
    assert "≥0.05" in lines[1]
    wide = ANSI.sub("", screen("cost", width=160)).splitlines()
    assert wide[1].split()[:4] == ["2026-01-03", "Sat", "10,600", "2,465"]
    assert "unpriced" in ANSI.sub("", screen("cost", "--model", "glm")).splitlines()[1]


@pytest.mark.parametrize(
    ("zone", "moments", "days"),
    [
        ("Asia/Kolkata", ["2026-01-02T18:29:59.999Z", "2026-01-02T18:30:00.000Z"], ["2026-01-03", "2026-01-02"]),
        # The clocks go forward on March 8 and back on November 1: days of 23 and of 25 hours.
        (
            "America/New_York",
            ["2026-03-08T04:59:59.000Z", "2026-03-08T05:00:00.000Z", "2026-03-09T03:59:59.000Z", "2026-03-09T04:00:00.000Z"],
            ["2026-03-09", "2026-03-08", "2026-03-07"],
        ),
        (
            "America/New_York",
            ["2026-11-01T03:59:59.000Z", "2026-11-01T04:00:00.000Z", "2026-11-02T04:59:59.000Z", "2026-11-02T05:00:00.000Z"],
            ["2026-11-02", "2026-11-01", "2026-10-31"],
        ),
        ("Asia/Kathmandu", ["2026-01-02T18:14:00.000Z", "2026-01-02T18:15:00.000Z"], ["2026-01-03", "2026-01-02"]),
        # Where the local clock leaves the calendar, its last day has to do.
        ("Pacific/Kiritimati", ["9999-12-31T23:00:00.000Z"], ["9999-12-31"]),
        ("Pacific/Pago_Pago", ["0001-01-01T00:00:00.000Z"], ["0001-01-01"]),
    ],
)  # fmt: skip
def test_days_are_those_of_the_users_zone(program, spend, lab, zone, moments, days):
    spend(*((moment, said(OPUS, 1)) for moment in moments))

    done = program("cost", "--json", env={**lab.env, "TZ": zone})

    found = json.loads(done.stdout)
    assert [row["key"] for row in found] == days
    assert sum(row["input_tokens"] for row in found) == len(moments)


def test_weeks_begin_on_monday_and_belong_to_the_year_of_their_thursday(sessiond, spend):
    spend(*((f"{day}T12:00:00.000Z", said(OPUS, 1)) for day in ("2026-01-04", "2026-01-05", "2027-01-03")))

    assert [row["key"] for row in sessiond("cost", "--by", "week", "--json").json] == [
        "2026-W53",
        "2026-W02",
        "2026-W01",
    ]


def test_a_response_without_a_time_counts_on_its_sessions_last_day(sessiond, spend):
    spend(
        ("2026-01-02T10:00:00.000Z", said(OPUS, 1)), (None, said(OPUS, 2)), ("2026-01-05T10:00:00.000Z", said(OPUS, 4))
    )

    found = sessiond("cost", "--json").json
    assert [(row["key"], row["input_tokens"]) for row in found] == [("2026-01-05", 6), ("2026-01-02", 1)]


def test_each_response_has_the_price_of_its_own_day(sessiond, spend):
    """Of a model that became cheaper: the day before, and the day itself."""
    model = listed("openai", "gpt-5.6-sol")
    before, after = model.prices[0], model.prices[-1]
    changed = after.constraint.start_date
    spend(
        (f"{changed - timedelta(days=1)}T23:59:00.000Z", said(model.id, 1_000_000 // 10)),
        (f"{changed}T00:00:00.000Z", said(model.id, 1_000_000 // 10)),
    )

    new, old = (row["usd"] for row in sessiond("cost", "--json").json)

    assert before.prices.input_mtok.base != after.prices.input_mtok.base
    assert old == pytest.approx(float(before.prices.input_mtok.base / 10))
    assert new == pytest.approx(float(after.prices.input_mtok.base / 10))


def test_many_short_prompts_are_not_priced_as_a_long_one(sessiond, spend):
    price = listed("google", "gemini-2.5-pro").prices.input_mtok
    (tier,) = price.tiers
    half = tier.start // 2
    spend(*((f"2026-01-02T10:00:0{n}.000Z", said("gemini-2.5-pro", 1, 0, half - 1)) for n in range(4)))
    short = sessiond("cost", "--json").json[0]["usd"]
    spend(("2026-01-03T10:00:00.000Z", said("gemini-2.5-pro", tier.start + 1)), session=BLOG)
    long = sessiond("cost", "--json").json[0]["usd"]

    read = listed("google", "gemini-2.5-pro").prices.cache_read_mtok
    assert short == pytest.approx(float((4 * price.base + 4 * (half - 1) * read.base) / 1_000_000))
    assert long == pytest.approx(float((tier.start + 1) * tier.price / 1_000_000))


def test_a_prompt_longer_than_the_model_takes_is_a_sum_of_short_ones(sessiond, spend):
    """As of an agent that states what a whole turn spent."""
    model = listed("x-ai", "grok-4.5")
    price = (model.prices if isinstance(model.prices, types.ModelPrice) else model.prices[0].prices).input_mtok
    spend(("2026-01-02T10:00:00.000Z", said(model.id, model.context_window + 1)))
    whole_turn = sessiond("cost", "--json").json[0]["usd"]
    spend(("2026-01-03T10:00:00.000Z", said(model.id, model.context_window)), session=BLOG)

    assert whole_turn == pytest.approx(float((model.context_window + 1) * price.base / 1_000_000))
    assert sessiond("cost", "--json").json[0]["usd"] == pytest.approx(
        float(model.context_window * price.tiers[-1].price / 1_000_000)
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("claude-opus-4-7", "claude-opus-4-7"),
        ("Claude-Opus-4-7", "claude-opus-4-7"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-20250514", "claude-sonnet-4-0"),
        ("claude-sonnet-4@20250514", "claude-sonnet-4-0"),
        ("claude-3-5-haiku-latest", "claude-3-5-haiku-latest"),
        ("claude-3-5-haiku-20241022", "claude-3-5-haiku-latest"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-sonnet-4.5", "anthropic/claude-sonnet-4.5"),
        ("gemini/gemini-2.5-pro", "gemini-2.5-pro"),
        ("gemini-2.5-pro-preview-06-05", "gemini-2.5-pro"),
        ("gpt-5-codex", "gpt-5"),
        ("gpt-5.2-20251211", "gpt-5.2"),
        ("grok-4", "grok-4-0709"),
    ],
)
def test_a_name_that_the_list_spells_out_has_a_price(name, found):
    assert priced._look_up(name.lower()).id == found
    assert PriceList().rate(name, NOON, 0) is not None


@pytest.mark.parametrize(
    "name",
    [
        None, "", "<synthetic>", "mock-model", "claude", "claude-nonsense-99", "claude-opus-4-7-turbo",
        "claude-opus-4-10", "claude-opus-4-1999", "claude-sonnet-4-5-9999", "my-claude-opus-4-7", "claude-2-imaginary",
        "gpt-5-99", "gpt-5-nano-imaginary", "gpt-nonsense", "gemini-2.5-pro-ultra", "gemini-1.5-flash-of-genius",
        "grok-nonsense", "nobody/claude-opus-4-7", "anthropic/claude-nonsense-99", "not-anthropic/claude-opus-4-7",
        "us.anthropic.claude-opus-4-7-v1:0", "qwen3-coder-plus", "whisper-1", "text-embedding-3-small",
    ],
)  # fmt: skip
def test_a_name_that_only_resembles_one_has_none(name):
    assert PriceList().rate(name, NOON, 0) is None


def test_the_date_is_that_of_the_newest_price_that_was_in_force_when_installed(tmp_path, monkeypatch):
    copy = tmp_path / "data.py"
    copy.touch()
    monkeypatch.setattr(data, "__file__", str(copy))
    known = sorted(set(priced._days()))
    newest = known[-1]
    installed = datetime(newest.year, newest.month, newest.day, tzinfo=UTC) - timedelta(hours=1)

    os.utime(copy, (installed.timestamp(), installed.timestamp()))
    assert PriceList().as_of() == known[-2]  # the newest is only announced
    assert PriceList().as_of(date(2100, 1, 1)) == known[-2]  # and does not become more by waiting

    os.utime(copy, (0, 0))  # a packager's time says nothing
    assert PriceList().as_of(known[-2]) == known[-2]


WATCH = """
import sys
def hook(event, args):
    if event.startswith("socket."):
        family = args[1] if event == "socket.__new__" else None
        print("SOCKET", event, int(family) if family is not None else "", file=sys.stderr)
sys.addaudithook(hook)
from sessiond.cli import main
main(sys.argv[1:])
print("IMPORTED", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def watched(lab, *args: str) -> list[list[str]]:
    argv = [sys.executable, "-c", WATCH, *args]
    done = subprocess.run(argv, capture_output=True, text=True, env=lab.env, cwd=ROOT, timeout=30)
    assert done.stdout
    return [line.split() for line in done.stderr.splitlines() if line.startswith(("SOCKET", "IMPORTED"))]


def test_no_network_is_touched(ledger, daemon):
    """The daemon's own socket (a file, family 1) is the only one; no name is looked up."""
    with daemon(status={"state": "ready", "version": "1"}):
        *sockets, imported = watched(ledger, "cost", "--by", "model")

    assert "genai_prices" in imported
    assert ["SOCKET", "socket.__new__", "1"] in sockets
    assert {event for _, event, *_ in sockets} <= {"socket.__new__", "socket.connect"}
    assert {family for _, event, *family in sockets for family in family} == {"1"}


def test_the_price_list_is_loaded_by_no_other_verb(ledger):
    for args in (["sessions"], ["show", SHOP], ["cost", "--help"], ["--help"]):
        *_, imported = watched(ledger, *args)
        assert not {"genai_prices", "httpx2"} & set(imported)
