"""The configuration: what is read, in which order, and how a mistake is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from sessiond.config import docs, files as config_files, load as config
from sessiond.config.exclusion import Exclusion
from sessiond.config.settings import Config
from sessiond.config.types import Percent
from sessiond.errors import ConfigError

ROOT = Path(__file__).parents[1]
FLAVORS = ("claude", "codex")
GIB = 2**30


class Home:
    """A user's home with configuration files in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.env = {"HOME": str(path)}
        self.system = path / "etc"

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def main(self, text: str | bytes) -> Path:
        return self.write(".config/sessiond/config.toml", text)

    def load(self, config_file: Path | None = None, **env: str) -> config.Loaded:
        return config.load(config_file, {**self.env, **env}, FLAVORS, system_dir=self.system)

    def complaint(self, config_file: Path | None = None, **env: str) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load(config_file, **env)
        assert caught.value.exit_code == 78
        return str(caught.value)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# --- what is read, in which order -----------------------------------------------------------------


def test_no_file_at_all_gives_the_defaults(home):
    loaded = home.load()

    assert loaded.config == Config()
    assert (loaded.path, loaded.files, loaded.warnings) == (None, (), ())
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.drop_ins == home.path / ".config/sessiond/config.d"


def test_the_defaults_are_those_of_the_design():
    values = config.values_of(Config())
    assert values == {
        "store.path": "auto",
        "store.on_corrupt": "rebuild",
        "watch.mode": "auto",
        "watch.scan_interval": "30s",
        "watch.poll_interval": "2s",
        "analyze.interval": "1m",
        "analyze.quiet_after": "30s",
        "analyze.max_delay": "5m",
        "analyze.outcome_after": "30m",
        "evict.interval": "10m",
        "retention.soft_cap": "auto",
        "retention.low_water": "80%",
        "retention.hard_cap": "auto",
        "retention.max_age": "off",
        "retention.min_age": "1d",
        "retention.keep_free": "auto",
        "retention.distilled_cap": "1GiB",
        "retention.on_overflow": "pause",
        "privacy.exclude": [],
        "privacy.mask": [],
        "search.max_chars": 2000,
        "limits.line": "8MiB",
        "limits.archive_line": "1GiB",
        "limits.chunk": "1MiB",
        "log.level": "info",
        "log.format": "auto",
    }


def test_mask_pattern_that_would_blow_up_is_refused(home):
    home.main("[privacy]\nmask = ['(a+)+$']\n")
    with pytest.raises(ConfigError, match="takes too long"):
        home.load()


def test_lists_of_other_keys_replace_each_other(home):
    home.main('[sources.claude]\nroots = ["/a"]\n')
    home.write(".config/sessiond/config.d/10-a.toml", '[sources.claude]\nroots = ["/b"]\n')
    assert [str(root) for root in home.load().config.source("claude").roots] == ["/b"]


def test_files_are_laid_one_over_the_other_and_each_value_knows_its_file(home):
    system = home.write("etc/config.d/10-site.toml", '[log]\nlevel = "error"\n[watch]\nmode = "poll"\n')
    main = home.main('[log]\nlevel = "warning"\n[retention]\nsoft_cap = "2GiB"\n[privacy]\nexclude = ["/a", "/b"]\n')
    second = home.write(".config/sessiond/config.d/20-b.toml", '[log]\nlevel = "debug"\n')
    first = home.write(".config/sessiond/config.d/10-a.toml", '[log]\nlevel = "info"\n[privacy]\nexclude = ["/c"]\n')
    home.write(".config/sessiond/config.d/notes.txt", "not read")
    home.write(".config/sessiond/config.d/.20-b.toml.swp.toml", "not = read")
    loaded = home.load()

    assert loaded.files == (system, main, first, second)
    assert loaded.path == main
    assert loaded.config.log.level == "debug"
    assert loaded.config.watch.mode == "poll"
    assert loaded.config.retention.soft_cap == 2 * GIB
    assert loaded.config.privacy.exclude == ("/a", "/b", "/c"), "privacy rules of several files add up"
    assert loaded.origins["log.level"] == str(second)
    assert loaded.origins["watch.mode"] == str(system)
    assert loaded.origins["retention.soft_cap"] == str(main)
    assert loaded.origins["privacy.exclude"] == str(first)
    assert loaded.origins["retention.hard_cap"] == "default"


def test_drop_ins_are_read_in_the_order_of_their_names(home):
    for number in (5, 2, 9, 1, 7, 3, 8, 4, 6):
        home.write(f".config/sessiond/config.d/{number}0.toml", f"[search]\nmax_chars = {number}\n")
    loaded = home.load()
    assert [path.name for path in loaded.files] == [f"{number}0.toml" for number in range(1, 10)]
    assert loaded.config.search.max_chars == 9


def test_the_named_file_wins_over_the_variable_and_that_over_the_users_own(home):
    home.main('[log]\nlevel = "error"\n')
    by_variable = home.write("v/v.toml", '[log]\nlevel = "debug"\n')
    named = home.write("n/n.toml", '[log]\nlevel = "warning"\n')

    assert home.load().config.log.level == "error"
    assert home.load(SESSIOND_CONFIG=str(by_variable)).config.log.level == "debug"
    assert home.load(SESSIOND_CONFIG="~/v/v.toml").path == by_variable
    loaded = home.load(named, SESSIOND_CONFIG=str(by_variable))
    assert (loaded.config.log.level, loaded.path, loaded.drop_ins) == ("warning", named, home.path / "n/config.d")


def test_an_empty_variable_counts_as_unset(home):
    assert home.load(SESSIOND_CONFIG="").config == Config()


def test_xdg_config_home_is_honoured_unless_relative(home):
    path = home.write("xdg/sessiond/config.toml", '[log]\nlevel = "debug"\n')
    assert home.load(XDG_CONFIG_HOME=str(home.path / "xdg")).path == path
    assert home.load(XDG_CONFIG_HOME="xdg").path is None


def test_drop_ins_are_read_without_a_main_file(home):
    home.write(".config/sessiond/config.d/90-set.toml", '[log]\nlevel = "debug"\n')
    loaded = home.load()
    assert (loaded.config.log.level, loaded.path, len(loaded.files)) == ("debug", None, 1)


def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(home):
    home.main(b'\xef\xbb\xbf[log]\r\nlevel = "debug"\r\n')
    assert home.load().config.log.level == "debug"


def test_every_key_can_be_set(home):
    home.main("""
        [store]
        path = "~/journal/store.db"
        on_corrupt = "stop"
        [watch]
        mode = "native"
        scan_interval = "1m"
        poll_interval = "500ms"
        [sources.claude]
        enabled = false
        roots = ["~/.claude", "/srv/claude"]
        [sources.codex]
        roots = []
        [analyze]
        interval = "2m"
        quiet_after = "0s"
        max_delay = "10m"
        outcome_after = "1h"
        [evict]
        interval = "1h"
        [retention]
        soft_cap = 1000000000
        low_water = "500MB"
        hard_cap = "2GB"
        max_age = "90d"
        min_age = "0s"
        keep_free = "0B"
        distilled_cap = "2GiB"
        on_overflow = "evict"
        [privacy]
        exclude = ["~/secret", "/srv/*/private/**"]
        mask = ['ACME-[0-9]{6}']
        [domains]
        "~/src/shop" = "retail"
        website = "marketing"
        [search]
        max_chars = 500
        [limits]
        line = "1MiB"
        archive_line = "10MiB"
        chunk = "64KiB"
        [log]
        level = "debug"
        format = "json"
    """)
    found = home.load().config

    assert found.store.path == home.path / "journal/store.db"
    assert found.watch.poll_interval == timedelta(milliseconds=500)
    assert found.source("claude").enabled is False
    assert found.source("claude").roots == (home.path / ".claude", Path("/srv/claude"))
    assert found.source("codex").roots == ()
    assert found.source("grok").roots is None
    assert found.retention.soft_cap == 10**9
    assert found.retention.low_water == 500 * 10**6
    assert found.retention.max_age == timedelta(days=90)
    assert found.retention.min_age == timedelta(0)
    assert found.retention.keep_free == 0
    assert found.privacy.exclude == (f"{home.path}/secret", "/srv/*/private/**")
    assert found.limits.chunk == 65_536
    again = Config.model_validate(found.model_dump(mode="json"), context={"env": home.env})
    assert again == found, "what is written back is read the same"
    changed = {key for key, value in config.values_of(found).items() if config.values_of(Config()).get(key) == value}
    assert changed == set(), "a key of the design is missing from this test"


def test_where_a_domain_was_set_is_known(home):
    main = home.main('[domains]\n"~/src/shop" = "retail"\nwebsite = "marketing"\n')
    origins = home.load().origins
    assert origins[f'domains."{home.path}/src/shop"'] == str(main)
    assert origins["domains.website"] == str(main)


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Config().log.level = "debug"


def test_an_agent_that_is_not_installed_is_a_warning(home):
    home.main("[sources.claud]\nenabled = true\n[sources.heron]\nenabled = true\n")
    assert home.load().warnings == (
        "sources.claud names no installed agent (did you mean claude?)",
        "sources.heron names no installed agent (installed are claude, codex)",
    )


def test_a_cap_of_a_few_bytes_is_a_warning(home):
    home.main("[retention]\nsoft_cap = 4\nlow_water = 3\n")
    [warning] = home.load().warnings
    assert warning == 'retention.soft_cap is only 4 B (a plain number is bytes; did you mean "4GiB"?)'


def test_those_who_only_read_the_store_learn_its_path_without_pydantic(home):
    assert config_files.store_path(None, home.env, home.system) is None
    home.main('[store]\npath = "~/j.db"\n')
    assert config_files.store_path(None, home.env, home.system) == home.path / "j.db"
    home.main('[store]\npath = "j.db"\n')
    with pytest.raises(ConfigError, match="is not an absolute path"):
        config_files.store_path(None, home.env, home.system)
    code = "import sys, sessiond.config.files; print('pydantic' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout == "False\n"


# --- how a mistake is told ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '[retention]\nsoft_cpa = "4GiB"',
            "retention.soft_cpa is not a key in ~/.config/sessiond/config.toml (did you mean retention.soft_cap?)",
        ),
        ("[retensions]\nx = 1", "retensions is not a section in FILE (did you mean retention?)"),
        ('soft_cap = "4GiB"', "soft_cap is not a key in FILE (did you mean retention.soft_cap?)"),
        ('[log]\nsoft_cap = "4GiB"', "log.soft_cap is not a key in FILE (did you mean retention.soft_cap?)"),
        (
            "[sources.claude]\nroot = []",
            "sources.claude.root is not a key in FILE (did you mean sources.claude.roots?)",
        ),
        ("[evict]\nzzz = 1", "evict.zzz is not a key in FILE (known here: interval)"),
        ("zzz = 1", "zzz is not a key in FILE (known here: store, watch, sources, analyze"),
        (
            '[retention]\nsoft_cap = "lots"',
            'retention.soft_cap in FILE: "lots" is not a size (write a size such as "500MB" or "4GiB", or "auto")',
        ),
        ("[retention]\nsoft_cap = 0", "retention.soft_cap in FILE: 0 is nothing (write a size"),
        ('[retention]\nsoft_cap = "0GiB"', "retention.soft_cap in FILE: 0GiB is nothing"),
        ('[retention]\nsoft_cap = "-4GiB"', 'retention.soft_cap in FILE: "-4GiB" is negative'),
        ('[retention]\nhard_cap = "0B"', "retention.hard_cap in FILE: 0B is nothing"),
        ("[retention]\nhard_cap = -1", "retention.hard_cap in FILE: -1 is negative"),
        ("[retention]\ndistilled_cap = 0", "retention.distilled_cap in FILE: 0 is nothing"),
        ('[retention]\nlow_water = "0%"', 'low_water in FILE: "0%" is not between 0% and 100% (write a share'),
        ('[retention]\nlow_water = "100%"', '"100%" is not between 0% and 100%'),
        ("[retention]\nlow_water = 0", "retention.low_water in FILE: 0 is nothing"),
        ('[retention]\nlow_water = "most"', '"most" is not a size (write a size such as "500MB" or "4GiB", or a share'),
        ('[retention]\nmax_age = "0s"', 'retention.max_age in FILE: "0s" would evict everything at once (write a time'),
        ('[retention]\nmax_age = "-1d"', 'retention.max_age in FILE: "-1d" is negative'),
        ("[retention]\nmax_age = 45", 'retention.max_age in FILE: 45 has no unit (write "45s", "45m", "45h" or "45d"'),
        ("[retention]\nmax_age = false", "retention.max_age in FILE: false is not a time"),
        ('[retention]\nmin_age = "off"', 'retention.min_age in FILE: "off" is not a time'),
        ('[evict]\ninterval = "0s"', 'evict.interval in FILE: "0s" is too often (write "10ms" or more)'),
        (
            '[watch]\nmode = "fast"',
            'watch.mode in FILE: "fast" is not one of its values (write "auto", "native" or "poll")',
        ),
        ('[log]\nlevel = "INFO"', 'log.level in FILE: "INFO" is not one of its values (write "debug", "info"'),
        (
            '[sources.claude]\nenabled = "yes"',
            'sources.claude.enabled in FILE: "yes" is neither true nor false (write true',
        ),
        ('[sources.claude]\nroots = "~/.claude"', "sources.claude.roots in FILE: '~/.claude' is not a list (write"),
        (
            '[sources.claude]\nroots = ["x"]',
            'sources.claude.roots in FILE: "x" is not an absolute path (begin with / or ~)',
        ),
        ("sources = 5", "sources in FILE: 5 is not a section (write [sources] and its keys on the lines below)"),
        ("retention = 5", "retention in FILE: 5 is not a section (write [retention] and its keys"),
        (
            '[search]\nmax_chars = "2000"',
            'search.max_chars in FILE: "2000" is not a whole number (write one without quotes)',
        ),
        ("[search]\nmax_chars = 0", "search.max_chars in FILE: 0 is too small (write 1 or more)"),
        (
            '[store]\npath = "store.db"',
            'store.path in FILE: "store.db" is not an absolute path (begin with / or ~ or "auto")',
        ),
        ("[store]\npath = 5", "store.path in FILE: 5 is not a path (write an absolute path in quotes"),
        (
            '[limits]\nchunk = "1GiB"',
            "limits.chunk in FILE: 1GiB is too much to hold in memory at a time (write 64MiB or less)",
        ),
        (
            '[limits]\nline = "2GiB"',
            "limits.line is 2GiB but limits.archive_line is 1GiB, in FILE (line must be at most",
        ),
        ("[privacy]\nmask = ['(']", "privacy.mask in FILE: '(' is not a regular expression: missing )"),
        ("[privacy]\nmask = ['x*']", "privacy.mask in FILE: 'x*' matches the empty text"),
        ("[privacy]\nmask = 'x'", "privacy.mask in FILE: 'x' is not a list"),
        (
            '[privacy]\nexclude = ["secret"]',
            '"secret" is no absolute path (begin with / or ~, or write "**/secret" for any',
        ),
        ('[privacy]\nexclude = [""]', '"" is no absolute path'),
        ('[privacy]\nexclude = ["/a/../b"]', '"/a/../b" contains ".." (write the path that it leads to)'),
        ("[privacy]\nexclude = [5]", "privacy.exclude in FILE: 5 is not a path pattern"),
        ("[domains]\nshop = 5", "domains.shop in FILE: 5 is not text (write it in quotes)"),
        ('[domains]\n"a/b" = "x"', 'domains in FILE: "a/b" is no absolute path'),
    ],
)
def test_a_mistake_names_file_key_value_and_the_way_out(home, text, complaint):
    home.main(text)
    assert complaint.replace("FILE", "~/.config/sessiond/config.toml") in home.complaint()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[log]\nlevel "info"', "FILE, line 2, column 7: expected '=' after a key in a key/value pair"),
        ("[retention]\nsoft_cap = 4GiB", 'FILE, line 2, column 13: expected newline or end of document after a statement (put the value in quotes: soft_cap = "4GiB")'),
        ("[retention]\nmax_age = off # never", 'FILE, line 2, column 11: invalid value (put the value in quotes: max_age = "off")'),
        ("[store]\npath = ~/x.db", '(put the value in quotes: path = "~/x.db")'),
        ("[log]\nlevel = ", "FILE, line 2, column 9: invalid value"),
        ('[log]\nlevel = "info', "FILE, line 2, column 14: "),
        ("[log]\nlevel = 'a'\nlevel = 'b'", "FILE, line 3, column 12: cannot overwrite a value"),
        ("[log\n", "FILE, line 1, column 5: "),
        (b"# fine\n[log]\nlevel = '\xff'\n", "FILE, line 3: not UTF-8 text (save the file as UTF-8)"),
        ("x = " + "[" * 5000, "FILE is nested too deeply"),
        ("#" * (2**20 + 1), "FILE is larger than 1 MiB"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_toml_names_the_place(home, text, complaint):
    home.main(text)
    assert complaint.replace("FILE", "~/.config/sessiond/config.toml") in home.complaint()


def test_several_mistakes_are_all_told_each_with_its_own_file(home):
    home.main('[log]\nlevel = "loud"\n[retention]\nsoft_cap = 0\n')
    home.write(".config/sessiond/config.d/50-more.toml", '[watch]\nmoed = "poll"\n')
    lines = home.complaint().splitlines()

    assert sorted(line.split(" ")[0] for line in lines) == ["log.level", "retention.soft_cap", "watch.moed"]
    [drop_in] = [line for line in lines if line.startswith("watch")]
    assert drop_in == ("watch.moed is not a key in ~/.config/sessiond/config.d/50-more.toml (did you mean watch.mode?)")


def test_several_broken_files_are_all_told(home):
    home.main("[log")
    home.write(".config/sessiond/config.d/1.toml", "=")
    lines = home.complaint().splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "~/.config/sessiond/config.toml",
        "~/.config/sessiond/config.d/1.toml",
    ]


def test_a_named_file_must_exist(home):
    complaint = "~/gone.toml does not exist (`sessiond config init` writes one to begin with)"
    assert home.complaint(home.path / "gone.toml") == complaint
    assert home.complaint(SESSIOND_CONFIG="~/gone.toml") == complaint


def test_a_folder_is_no_file(home):
    assert home.complaint(home.path) == f"{home.path} is a folder, not a file"


def test_a_file_that_may_not_be_read_is_named():
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path: nobody must be able to get there
        Path(folder).chmod(0o755)
        home = Home(Path(folder))
        home.main("[log]\n").chmod(0)
        for path in Path(folder).rglob("*/"):
            path.chmod(0o755)
        with without_roots_powers():
            complaint = home.complaint()
    assert complaint == "~/.config/sessiond/config.toml cannot be read: permission denied (make it readable for you)"


@contextmanager
def without_roots_powers():
    """Root may read anything, so root tries as nobody."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


# --- caps -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('soft_cap = "2GiB"\nlow_water = "2GiB"', "retention.low_water is 2GiB and retention.soft_cap is 2GiB, in FILE (low_water must be the smaller one)"),
        ('soft_cap = "3GiB"\nhard_cap = "2GiB"', "retention.hard_cap is 2GiB and retention.soft_cap is 3GiB, in FILE (soft_cap must not be the larger one)"),
        ('low_water = "4GiB"', "retention.low_water is 4GiB and retention.soft_cap is 4 GiB on this disk, in FILE"),
    ],
)  # fmt: skip
def test_caps_that_contradict_each_other_are_told_when_read(home, text, complaint):
    home.main("[retention]\n" + text)
    assert complaint.replace("FILE", "~/.config/sessiond/config.toml") in home.complaint()


def test_equal_soft_and_hard_caps_are_fine(home):
    home.main('[retention]\nsoft_cap = "2GiB"\nhard_cap = "2GiB"\n')
    assert home.load().config.retention.hard_cap == 2 * GIB


@pytest.mark.parametrize(
    ("disk", "soft", "free"),
    [(1000 * GIB, 4 * GIB, 2 * GIB), (20 * GIB, 2 * GIB, GIB), (40 * GIB, 4 * GIB, 2 * GIB)],
)
def test_auto_caps_follow_the_disk(disk, soft, free):
    caps = Config().retention.caps(disk)
    assert (caps.soft_cap, caps.hard_cap, caps.keep_free) == (soft, soft * 3 // 2, free)
    assert caps.low_water == Percent(80).of(soft)
    assert caps.low_water < caps.soft_cap <= caps.hard_cap


def test_auto_that_contradicts_what_is_set_is_told_once_the_disk_is_known(home):
    home.main('[retention]\nhard_cap = "1GiB"\n')
    retention = home.load().config.retention
    assert retention.caps(5 * GIB).hard_cap == GIB
    with pytest.raises(ConfigError, match=r"hard_cap is 1GiB and retention.soft_cap is 4 GiB on this disk"):
        retention.caps(1000 * GIB)


# --- privacy and domains --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "path", "is_excluded"),
    [
        ("/home/x/secret", "/home/x/secret", True),
        ("/home/x/secret", "/home/x/secret/deep/er", True),
        ("/home/x/secret", "/home/x/secrets", False),
        ("/home/x/secret", "/home/x", False),
        ("/home/x/secret/", "/home/x/secret", True),
        ("/home/x/secret/**", "/home/x/secret", True),
        ("/home/x/secret/**", "/home/x/secret/a/b", True),
        ("/home/x/secret/*", "/home/x/secret", False),
        ("/home/x/secret/*", "/home/x/secret/a/b", True),
        ("~/work/*/private", "/home/x/work/acme/private", True),
        ("~/work/*/private", "/home/x/work/acme/eu/private", False),
        ("~/work/**/private", "/home/x/work/acme/eu/private/z", True),
        ("~/work/**/private", "/home/x/work/private", True),
        ("**/private", "/any/where/private/a", True),
        ("**/private", "/any/where/privateer", False),
        ("**/*.key", "/a/b.key", True),
        ("/srv/client-?", "/srv/client-7", True),
        ("/srv/client-?", "/srv/client-77", False),
        ("/srv/[ab]c", "/srv/bc/x", True),
        ("/srv/[!ab]c", "/srv/bc", False),
        ("/srv/[!ab]c", "/srv/xc", True),
        ("/srv/a.b", "/srv/aXb", False),
        ("/srv/a[b", "/srv/a[b/c", True),
        ("/srv/(x)+", "/srv/(x)+", True),
        ("~", "/home/x/anything", True),
        ("/", "/anything", True),
        ("**", "/anything", True),
        ("/srv/x", "//srv//x/", True),
        ("/srv/x", "/srv/y/../x", True),
        ("/srv/x", "/srv/x/../y", False),
        ("/srv/x", "srv/x", False),
        ("/srv/x", "", False),
        ("/srv/café", "/srv/cafe\u0301", True),  # the same name, as macOS spells it
        ("/srv/x", "/srv/x\n/y", False),
        ("/srv/*", "/srv/x\ny/z", True),
        ("/srv/x", "/srv/x/\0", True),
    ],
)  # fmt: skip
def test_excluded_is_what_a_pattern_names_and_all_below(pattern, path, is_excluded):
    assert Exclusion([pattern], {"HOME": "/home/x"}).matches(path) is is_excluded


def test_without_rules_nothing_is_excluded():
    nothing = Exclusion([], {})
    assert not nothing
    assert not nothing.matches("/home/x")


def test_a_link_is_excluded_under_both_its_names(tmp_path):
    (tmp_path / "real/below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    by_link = Exclusion([f"{tmp_path}/link/**"], {})
    by_real = Exclusion([f"{tmp_path}/real"], {})
    for rule in (by_link, by_real):
        assert rule.matches(f"{tmp_path}/link/below")
        assert rule.matches(f"{tmp_path}/real/below")
    assert not by_link.matches(f"{tmp_path}/other")


def test_the_most_specific_domain_wins(home):
    home.main('[domains]\n"~/src" = "own"\n"~/src/shop" = "retail"\nwebsite = "marketing"\n"/srv/*/api" = "backend"\n')
    found = home.load().config
    assert found.domain(f"{home.path}/src/shop") == "retail"
    assert found.domain(f"{home.path}/src/shop/sub") == "retail"
    assert found.domain(f"{home.path}/src/toy") == "own"
    assert found.domain("/elsewhere/website") == "marketing"
    assert found.domain("/srv/eu/api") == "backend"
    assert found.domain("/elsewhere/other") is None
    assert found.domain(None) is None


# --- the words about it ---------------------------------------------------------------------------


def test_the_example_is_current():
    assert (ROOT / "config.example.toml").read_text() == docs.render_example(), (
        "run: python -c 'from sessiond.config.docs import render_example as r; print(r(), end=\"\")' > config.example.toml"
    )


def test_the_example_says_nothing_but_the_defaults(home):
    text = docs.render_example()
    home.main(text)
    as_it_is = home.load()
    home.main(re.sub(r"^#(?=\S)", "", text, flags=re.MULTILINE))
    uncommented = home.load()

    for loaded in (as_it_is, uncommented):
        assert loaded.warnings == ()
        assert loaded.config.model_copy(update={"sources": {}}) == Config()
        assert loaded.config.source("claude") == Config().source("claude")
    set_keys = {key for key, origin in uncommented.origins.items() if origin != "default"}
    assert set_keys == set(config.values_of(Config())) | {"sources.claude.enabled", "sources.claude.roots"}


def test_every_key_has_words():
    tables = tomllib.loads(re.sub(r"^#(?=\S)", "", docs.render_example(), flags=re.MULTILINE))
    assert set(tables) == set(Config.model_fields)
    assert "None" not in docs.render_example()


def test_the_table_in_the_docs_is_current():
    page = (ROOT / "docs/configuration.md").read_text()
    assert docs.render_table() in page, (
        "put the output of sessiond.config.docs.render_table() into docs/configuration.md"
    )
