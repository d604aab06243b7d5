"""`exclude`: a privacy rule from the command line; the user's own file and rules stay what they are."""

from __future__ import annotations

import json
import stat
import tomllib

import pytest

from lab import user_line


@pytest.fixture
def folder(lab):
    return lab.user_home / ".config" / "sessiond"


@pytest.fixture
def drop_in(folder):
    return folder / "config.d" / "80-exclude.toml"


def rules(path) -> list[str]:
    return tomllib.loads(path.read_text())["privacy"]["exclude"]


def in_force(lab) -> list[str]:
    return json.loads(lab.cli("config", "show", "--json").stdout)["values"]["privacy.exclude"]["value"]


def test_it_writes_a_private_drop_in_that_says_who_wrote_it(lab, drop_in):
    done = lab.cli("exclude", "/srv/secret", "~/private")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "excluded: /srv/secret",
        "excluded: ~/private",
        "it takes effect when the daemon starts",
    ]
    assert rules(drop_in) == ["/srv/secret", "~/private"]
    assert drop_in.read_text().startswith("# Written by `sessiond exclude`")
    assert stat.S_IMODE(drop_in.stat().st_mode) == 0o600
    assert in_force(lab) == ["/srv/secret", str(lab.user_home / "private")]
    assert [path.name for path in drop_in.parent.iterdir()] == ["80-exclude.toml"]  # no draft is left


def test_the_users_own_rules_stay_in_force_and_his_file_untouched(lab, folder, drop_in):
    text = '# mine\n[privacy]\nexclude = ["/srv/mine"]\n'
    lab.write_config(text)

    lab.cli("exclude", "/srv/secret")
    lab.cli("exclude", "/srv/more", "/srv/secret", "/srv/mine")

    assert in_force(lab) == ["/srv/mine", "/srv/secret", "/srv/more"]
    assert (folder / "config.toml").read_text() == text
    assert rules(drop_in) == ["/srv/secret", "/srv/more"]


def test_a_rule_that_holds_already_is_not_written_again(lab, drop_in):
    lab.write_config(f'[privacy]\nexclude = ["{lab.user_home}/private"]\n')

    done = lab.cli("exclude", "~/private")

    assert done.stdout == "excluded already\n"
    assert not drop_in.exists()


@pytest.mark.parametrize(("pattern", "words"), [("secret", "is no absolute path"), ("/srv/../x", 'contains ".."')])
def test_a_bad_pattern_is_refused_in_the_configurations_own_words(lab, drop_in, pattern, words):
    done = lab.cli("exclude", "/srv/good", pattern)
    lab.write_config(f'[privacy]\nexclude = ["{pattern}"]\n')
    checked = lab.cli("config", "check")

    assert done.returncode == 2
    assert words in done.stderr
    assert words in checked.stderr
    assert not drop_in.exists()


def test_here_is_a_dot(lab, drop_in):
    here = lab.folder.resolve() / "w"
    here.mkdir()

    assert lab.cli("exclude", ".", cwd=here).returncode == 0

    assert rules(drop_in) == [str(here)]


def test_remove_takes_out_what_exclude_wrote(lab, drop_in):
    lab.cli("exclude", "/srv/a", "/srv/b")

    done = lab.cli("exclude", "--remove", "/srv/a")
    assert done.stdout.splitlines()[0] == "no longer excluded: /srv/a"
    assert rules(drop_in) == ["/srv/b"]

    lab.cli("exclude", "--remove", "/srv/b")
    assert not drop_in.exists()
    assert lab.cli("exclude", "--remove", "/srv/b").returncode == 1


def test_remove_names_the_users_file_and_leaves_his_rule(lab, drop_in):
    lab.write_config('[privacy]\nexclude = ["/srv/mine"]\n')
    lab.cli("exclude", "/srv/a")

    done = lab.cli("exclude", "--remove", "/srv/mine")

    assert done.returncode == 1
    assert "~/.config/sessiond/config.toml" in done.stderr
    assert in_force(lab) == ["/srv/mine", "/srv/a"]

    lab.cli("exclude", "--remove", "/srv/a")
    assert not drop_in.exists()
    assert in_force(lab) == ["/srv/mine"]


def test_list_names_the_file_of_each_rule_and_all_of_them_hold(lab, folder, drop_in):
    lab.write_config('[privacy]\nexclude = ["/srv/mine"]\n')
    lab.cli("exclude", "/srv/a")
    lab.write_config('[privacy]\nexclude = ["/srv/mine", "/srv/later"]\n')  # after the drop-in was written
    later = folder / "config.d" / "90-set.toml"
    later.write_text('[privacy]\nexclude = ["/srv/x"]\n')

    done = lab.cli("exclude", "--list")
    told = json.loads(lab.cli("exclude", "--list", "--json").stdout)["exclude"]

    main = str(folder / "config.toml")
    assert told == [
        {"pattern": "/srv/mine", "file": main},
        {"pattern": "/srv/later", "file": main},
        {"pattern": "/srv/a", "file": str(drop_in)},
        {"pattern": "/srv/x", "file": str(later)},
    ]
    assert "/srv/later" in done.stdout
    assert in_force(lab) == ["/srv/mine", "/srv/later", "/srv/a", "/srv/x"]


def test_what_is_stored_already_is_counted_and_can_be_forgotten(lab):
    for name, cwd in (("inside00", "/srv/secret/deep"), ("outside0", "/srv/public")):
        lab.claude_file(name).write_bytes(user_line(0, session=name, cwd=cwd))
    lab.ingest()

    done = lab.cli("exclude", "/srv/secret")
    assert "1 session of excluded folders" in done.stderr
    assert "sessiond forget --excluded" in done.stderr

    told = json.loads(lab.cli("forget", "--excluded", "--yes", "--json").stdout)
    assert told["forgotten"] == ["claude:inside00"]
    assert list(lab.sessions()) == ["claude:outside0"]


def test_a_running_daemon_holds_to_it_at_once(lab):
    with lab.daemon():
        done = lab.cli("exclude", "/srv/secret")
        assert done.stdout == "excluded: /srv/secret\n"
        lab.claude_file("inside00").write_bytes(user_line(0, session="inside00", cwd="/srv/secret"))
        lab.claude_file("outside0").write_bytes(user_line(0, session="outside0", cwd="/srv/public"))
        lab.ingest_through_daemon()

    assert list(lab.sessions()) == ["claude:outside0"]


@pytest.mark.parametrize("words", [(), ("--list", "/srv/a"), ("/srv/a", "--remove", "/srv/b")])
def test_one_thing_at_a_time(lab, words):
    assert lab.cli("exclude", *words).returncode == 2
