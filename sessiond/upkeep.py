"""What changes the store besides intake: the passes, and what people ask for by hand.

Each verb takes parameters and returns a report, both JSON. The daemon runs them one at a time between its scheduled
passes; without a daemon a command holds the lock and runs its verb itself, on the same code.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sessiond.adapters import adapters
from sessiond.errors import UsageError
from sessiond.intake.parse import Wording
from sessiond.intake.reindex import reindex
from sessiond.log.light import structlog
from sessiond.mask import Masker
from sessiond.model import utc
from sessiond.passes.analyze import Analyzed, Analyzer, Pace
from sessiond.passes.evict import Evicted, Evictor
from sessiond.passes.plan import Policy, needed
from sessiond.store import connect, evict, forget, passes, pinned, reader, rebuild, space
from sessiond.store.wal import WalWatch
from sessiond.units import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from sessiond.config.settings import Config
    from sessiond.intake.pipeline import Pipeline
    from sessiond.paths import Paths
    from sessiond.trouble import Troubles

    Verb = Callable[[dict[str, Any]], dict[str, Any]]

HOLDERS = {
    "pinned": "in pinned sessions",
    "young": "in sessions younger than min_age",
    "not distilled": "in sessions that are not distilled yet",
}
MAKES_ROOM = ("analyze", "unpin", "forget")
# How soon a pass that could not reach its mark is tried again, unless more was written; and while ingest waits for it.
TRY_AGAIN_SECONDS, TRY_SOON_SECONDS = 60.0, 5.0


class Upkeep:
    """The verbs by name. `config` is asked each time: a reload may have brought another."""

    def __init__(
        self,
        config: Callable[[], Config],
        paths: Paths,
        pipeline: Pipeline,
        troubles: Troubles,
        *,
        is_clock_doubtful: Callable[[], bool] = lambda: False,
        clock_ahead: Callable[[], timedelta] = timedelta,
        is_stopping: Callable[[], bool] = lambda: False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._config = config
        self._paths = paths
        self._pipeline = pipeline
        self._troubles = troubles
        self._is_clock_doubtful = is_clock_doubtful
        self._clock_ahead = clock_ahead
        self._is_stopping = is_stopping
        self._now = now
        self._log = structlog.get_logger()
        self._wal = WalWatch(paths, pipeline.writer, pipeline.search)
        # What the last evict pass ended with if it could not reach its mark: bytes used, when, by which policy.
        self._tried: tuple[int, float, Policy] | None = None
        self.did: dict[str, dict[str, str]] = {}  # the last time that a pass had anything to do: when, and what
        self._verbs: dict[str, Verb] = {
            "analyze": lambda _: self.analyze(everything=True).to_dict(),
            "evict": self._evict_by_hand,
            "acknowledge": self._acknowledge,
            "pin": lambda params: pinned.set_pinned(self._pipeline.writer, uids_of(params), pinned=True),
            "unpin": lambda params: pinned.set_pinned(self._pipeline.writer, uids_of(params), pinned=False),
            "forget": self._forget,
            "reindex": self._reindex,
            "pause": self._pipeline.pause_by_hand,
            "unpause": self._pipeline.unpause,
        }

    def do(self, verb: str, params: dict[str, Any]) -> dict[str, Any]:
        """Run a verb to its end. SessiondError where it cannot be done."""
        if verb not in self._verbs:
            raise UsageError(f"there is no {verb} to be done", hint=f"known are {', '.join(sorted(self._verbs))}")
        try:
            return self._verbs[verb](params)
        finally:
            if verb in MAKES_ROOM:
                self._tried = None  # what could not go a moment ago may go now

    def start(self) -> None:
        """What must hold before anything else is done: room to work in, and old losses named."""
        policy = self._policy()
        space.keep_ballast(self._paths, space.reserve(policy.caps.soft_cap), policy.caps.keep_free)
        self._name_losses()
        with connect.reading(self._paths.store) as db:
            for name in ("analyze", "evict"):
                for last in passes.lately(db, name, 1):
                    self.did[name] = {"did_at": last["ended_at"], "did": last.get("words", "")}

    # --- analyze --------------------------------------------------------------------------------

    def analyze(self, *, everything: bool = False) -> Analyzed:
        config = self._config()
        analyzer = Analyzer(
            self._paths.store,
            self._pipeline.writer,
            mask=Masker(config.privacy.mask).mask,
            on_failure=lambda uid, error: self._log.error("digest_failed", session=uid, exc_info=error),
        )
        pace = Pace(config.analyze.quiet_after, config.analyze.max_delay, config.analyze.outcome_after)
        report = analyzer.run(pace, self._now(), everything=everything, is_stopping=self._is_stopping)
        self._pipeline.search.wake()
        detail = (
            f"{len(report.failed)} sessions cannot be distilled, such as {report.failed[0]}" if report.failed else None
        )
        self._troubles.report("digest", detail, "they stay in the store; the log says why")
        if report.sessions:
            self._keep_report("analyze", report.to_dict(), report.words())
        return report

    # --- evict ----------------------------------------------------------------------------------

    def evict(self) -> Evicted:
        policy, now = self._policy(), self._now()
        report = self._evictor().run(
            self._by_trusted_time(policy),
            now,
            is_clock_doubtful=self._is_clock_doubtful(),
            is_stopping=self._is_stopping,
        )
        is_reached = report.unreachable is None and report.is_space_back
        self._tried = None if is_reached else (report.used_after, time.monotonic(), policy)
        self._name_what_is_over(report)
        self._name_losses()
        if report.sessions:
            self._keep_report("evict", report.to_dict(), report.words())
        return report

    def is_eviction_due(self) -> bool:
        """Was a cap crossed, or is a pause for one to be ended? Asked every second; ingest stops at the hard one until
        the pass has been there.
        """
        policy = self._policy()
        caps, reserve = policy.caps, space.reserve(policy.caps.soft_cap)
        used = space.total(self._paths)
        pauses = {"hard_cap", "keep_free"} & self._pipeline.loop.pauses.keys()
        if used <= caps.soft_cap and space.free(self._paths) >= caps.keep_free + reserve:
            return bool(pauses)
        with connect.reading(self._paths.store) as db:
            usage = space.measure(db, self._paths)
        if usage.held > caps.hard_cap:
            self._pipeline.pause("hard_cap")
        is_over = needed(usage, caps) > 0 or bool(pauses)
        is_over |= used > caps.soft_cap and usage.slack > 4 * reserve  # a reader kept it from being given back
        if self._tried is None or self._tried[2] != policy:
            return is_over
        before, at, _ = self._tried
        patience = TRY_SOON_SECONDS if pauses else TRY_AGAIN_SECONDS
        return is_over and (used > before + caps.soft_cap // 100 or time.monotonic() - at > patience)

    def _evict_by_hand(self, params: dict[str, Any]) -> dict[str, Any]:
        if params.get("dry_run"):
            policy, now = self._policy(), self._now()
            return self._evictor().dry_run(
                self._by_trusted_time(policy), now, is_clock_doubtful=self._is_clock_doubtful()
            )
        return self.evict().to_dict()

    def _evictor(self) -> Evictor:
        pipeline = self._pipeline
        return Evictor(
            self._paths,
            pipeline.writer,
            pipeline.search,
            analyze=lambda: self.analyze(everything=True),
            pause=pipeline.pause,
            resume=pipeline.resume,
        )

    def _policy(self) -> Policy:
        retention = self._config().retention
        return Policy(
            caps=retention.caps(shutil.disk_usage(self._paths.store.parent).total),
            min_age=retention.min_age,
            max_age=retention.max_age,
            on_overflow=retention.on_overflow,
            distilled_cap=retention.distilled_cap,
        )

    def _by_trusted_time(self, policy: Policy) -> Policy:
        """A clock that jumped makes no session quiet for `min_age`: what it jumped by does not count."""
        return replace(policy, min_age=policy.min_age + self._clock_ahead())

    def _forget(self, params: dict[str, Any]) -> dict[str, Any]:
        pipeline = self._pipeline
        report = forget.forget(
            pipeline.writer, pipeline.search, self._paths, uids_of(params), leave_alone=pipeline.leave_alone
        )
        self._name_losses()
        return report

    def finish_forgetting(self) -> None:
        """A kill may have come while something was being forgotten."""
        forget.resume_forgetting(self._pipeline.writer, self._pipeline.search, self._paths)

    def _reindex(self, params: dict[str, Any]) -> dict[str, Any]:
        """Intake rests meanwhile and begins anew with what the store says: what it remembers is of the old reading."""
        pipeline, config = self._pipeline, self._config()
        is_running = bool(pipeline.loop.watch.health.roots)
        pipeline.pause("reindex")
        try:
            while pipeline.loop.is_reading:
                time.sleep(0.005)
            pipeline.writer.drain()
            report = self._derive_anew(config, [str(uid) for uid in params.get("uids") or ()])
        finally:
            if is_running:
                pipeline.reconfigure(self._config())
            pipeline.resume("reindex")
            pipeline.search.wake()
        self.analyze(everything=True)  # digests are derived anew as well
        self._keep_report("reindex", report, f"{report['sessions']} sessions")
        return report

    def _derive_anew(self, config: Config, uids: list[str]) -> dict[str, Any]:
        db = connect.open_reader(self._paths.store)
        try:
            return reindex(
                self._pipeline.writer,
                db,
                adapters(),
                Wording(Masker(config.privacy.mask).mask, config.domain, config.search.max_chars),
                config.limits.line,
                [reader.resolve_uid(db, uid) for uid in uids] or None,
                self._now(),
                is_stopping=self._is_stopping,
                on_failure=lambda uid, error: self._log.error("reindex_failed", session=uid, exc_info=error),
            )
        finally:
            db.close()

    def _acknowledge(self, _: dict[str, Any]) -> dict[str, Any]:
        now = self._now()
        read = self._pipeline.writer.call(lambda db: evict.acknowledge(db, now) + rebuild.acknowledge(db, now))
        self._name_losses()
        self._troubles.report("store_rebuilt", None)
        return {"acknowledged": read}

    def look_at_wal(self) -> None:
        """Asked every second: a WAL that cannot be emptied is named before it is the disk that is full."""
        detail = self._wal.look(space.reserve(self._policy().caps.soft_cap))
        self._troubles.report("wal", detail, "close that program; the WAL shrinks by itself then")

    # --- telling --------------------------------------------------------------------------------

    def _name_what_is_over(self, report: Evicted) -> None:
        detail = None
        if report.unreachable is not None:
            holders = [each for each in report.unreachable["held_by"] if each["bytes"]]
            held = ", ".join(
                f"{format_size(each['bytes'])} {HOLDERS.get(each['what'], each['what'])}" for each in holders
            )
            detail = f"{format_size(report.unreachable['bytes'])} more than allowed, and nothing may go: {held}"
        self._troubles.report(
            "over_budget", detail, "allow more: retention.soft_cap; sessiond evict says what holds it"
        )
        cap = self._policy().distilled_cap
        with connect.reading(self._paths.store) as db:
            distilled = evict.distilled_bytes(db)
        detail = f"digests and the like take {format_size(distilled)}" if distilled > cap else None
        self._troubles.report("distilled_cap", detail, "forget old sessions, or raise retention.distilled_cap")

    def _name_losses(self) -> None:
        with connect.reading(self._paths.store) as db:
            lost = list(evict.losses(db))
        detail = (
            f"{len(lost)} sessions were evicted before they were distilled, the last on {lost[-1]['at']}"
            if lost
            else None
        )
        self._troubles.report("data_loss", detail, "when you have read it: sessiond status --acknowledge")

    def _keep_report(self, name: str, report: dict[str, Any], words: str) -> None:
        now = self._now()
        self.did[name] = {"did_at": utc(now), "did": words}
        self._pipeline.writer.call(lambda db: passes.keep(db, name, {**report, "words": words}, now))


def uids_of(params: dict[str, Any]) -> list[str]:
    """The sessions that a verb is about, by their exact uids."""
    uids = params.get("uids")
    if not isinstance(uids, list) or not uids or not all(isinstance(uid, str) for uid in uids):
        raise UsageError("it takes a list of session uids")
    return uids
