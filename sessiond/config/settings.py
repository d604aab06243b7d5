"""The settings as a model: every key, its default, and why one would change it.

The descriptions are the documentation: `docs` makes config.example.toml and the table of
docs/configuration.md from them. Reading the files is `files`; `load` puts both together.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from sessiond.config.exclusion import check_glob, glob_regex
from sessiond.config.retention import Retention
from sessiond.config.types import (
    ChunkSize,
    Globs,
    Interval,
    PathOrAuto,
    Regexes,
    Roots,
    Section,
    Size,
    Span,
    env_of,
)
from sessiond.units import write_size

MIB, GIB = 2**20, 2**30


class Store(Section):
    """Where the journal is kept."""

    path: PathOrAuto = Field(
        default=None,
        description='The database file; "auto" is store.db in the state folder. Not on a network file system.',
    )
    on_corrupt: Literal["rebuild", "stop"] = Field(
        default="rebuild",
        description="A damaged store is moved aside, never deleted, and made again from what it still holds and from "
        "the agents' files. With stop, nothing is touched: the daemon ends and waits for you.",
    )


class Watch(Section):
    """How sessiond notices that an agent wrote something."""

    mode: Literal["auto", "native", "poll"] = Field(
        default="auto",
        description='"native" lets the kernel tell, "poll" looks by itself (network file systems, '
        'containers); "auto" is native for as long as that works.',
    )
    scan_interval: Interval = Field(
        default=timedelta(seconds=30),
        description="How often all folders are walked to find what the kernel did not tell.",
    )
    poll_interval: Interval = Field(default=timedelta(seconds=2), description="The same when polling.")


class SourceSettings(Section):
    """One agent, by its name: claude, codex, grok, mycode, skill, hive or that of a plug-in."""

    enabled: bool = Field(default=True, description="false: nothing of this agent is read.")
    roots: Roots = Field(
        default=None,
        description='The agent\'s home folders, such as ["~/.claude", "/srv/agents/claude"]; they '
        'replace the usual one. "auto" is where the agent itself would look, [] is none.',
    )


class Analyze(Section):
    """When sessions are distilled into digests."""

    interval: Interval = Field(default=timedelta(minutes=1), description="How often to look for sessions to distil.")
    quiet_after: Span = Field(
        default=timedelta(seconds=30), description="A session is distilled once nothing was written for this long..."
    )
    max_delay: Span = Field(
        default=timedelta(minutes=5), description="...and at the latest this long after its first new event."
    )
    outcome_after: Span = Field(
        default=timedelta(minutes=30),
        description="Silence after which a session counts as ended, so that its outcome can be told.",
    )


class Evict(Section):
    """When room is made."""

    interval: Interval = Field(
        default=timedelta(minutes=10),
        description="How often the caps of [retention] are checked, besides whenever one is crossed.",
    )


class Privacy(Section):
    """What sessiond must not keep, and must not show."""

    exclude: Globs = Field(
        default=(),
        description='Folders of which nothing is stored, such as ["~/private", "/srv/*/secret/**"]: the '
        "folder and all below it, matched against a session's working folder and repository. The lists of all files "
        "add up; `sessiond exclude` writes one.",
    )
    mask: Regexes = Field(
        default=(),
        description="Regular expressions of your own secrets, such as ['ACME-[0-9]{6}']; keys, "
        "tokens and passwords of the usual kinds are masked anyway. The lists of all files add up.",
    )


class Search(Section):
    """The full-text index."""

    max_chars: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=2000,
        description="Characters indexed of each event, three quarters of them from its beginning; "
        "more finds more and takes more disk.",
    )


class Limits(Section):
    """Guards against files that are not what they should be."""

    line: Size = Field(default=8 * MIB, description="A longer line is archived but not understood.")
    archive_line: Size = Field(default=GIB, description="Of a line longer than this only length and hash are kept.")
    chunk: ChunkSize = Field(default=MIB, description="How much of a file is read at a time; memory use grows with it.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.line > self.archive_line:
            raise ValueError(
                f"limits.line is {write_size(self.line)} but limits.archive_line is "
                f"{write_size(self.archive_line)}; line must be at most archive_line"
            )
        return self


class Log(Section):
    """What the daemon says about itself, on stderr. The words of your sessions never enter it."""

    level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="How much it says.")
    format: Literal["auto", "json", "console"] = Field(
        default="auto", description='"console" is for eyes, "json" for tools; "auto" is console on a terminal.'
    )


class Config(Section):
    """Everything a person can set, complete with defaults."""

    store: Store = Store()
    watch: Watch = Watch()
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    analyze: Analyze = Analyze()
    evict: Evict = Evict()
    retention: Retention = Retention()
    privacy: Privacy = Privacy()
    domains: dict[str, str] = Field(
        default_factory=dict,
        description="Which area of your work a repository belongs to, by path or by the name of "
        'its folder; the most specific wins. For example "~/src/shop" = "retail", or website = "marketing".',
    )
    search: Search = Search()
    limits: Limits = Limits()
    log: Log = Log()

    @field_validator("domains")
    @classmethod
    def _with_home(cls, domains: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        return {check_glob(repo, env_of(info)) if "/" in repo else repo: name for repo, name in domains.items()}

    def source(self, flavor: str) -> SourceSettings:
        return self.sources.get(flavor) or SourceSettings()

    def domain(self, repo: str | None) -> str | None:
        """The domain of a repository: its path, or a folder above it, or just its name, in that order."""
        if repo is None:
            return None
        for pattern in sorted(self.domains, key=len, reverse=True):
            if "/" in pattern and glob_regex(pattern).match(repo):
                return self.domains[pattern]
        return self.domains.get(PurePosixPath(repo).name)
