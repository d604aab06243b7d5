"""`sessiond config`: right or wrong, what holds, which files, one to begin with."""

from __future__ import annotations

import os
import tomllib


def test_init_writes_an_example_that_is_right_and_private(sessiond, lab):
    said = sessiond("config", "init")

    path = lab.user_home / ".config" / "sessiond" / "config.toml"
    assert said.code == 0
    assert "~/.config/sessiond/config.toml written" in said.out
    assert tomllib.loads(path.read_text()) is not None
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert sessiond("config", "check") == (0, "~/.config/sessiond/config.toml: no mistakes\n", "")


def test_init_never_overwrites(sessiond, lab):
    lab.write_config("# mine\n")
    said = sessiond("config", "init")

    assert said == (1, "", "sessiond: ~/.config/sessiond/config.toml exists already (edit it, or move it away first)\n")
    assert (lab.user_home / ".config" / "sessiond" / "config.toml").read_text() == "# mine\n"


def test_init_writes_where_config_says(sessiond, tmp_path):
    target = tmp_path / "new" / "own.toml"

    assert sessiond("--config", str(target), "config", "init").code == 0
    assert target.exists()


def test_check_names_every_mistake(sessiond, lab):
    lab.write_config('[retention]\nsoft_cap = "0"\n[watch]\nmod = "poll"\n')
    said = sessiond("config", "check")

    lines = said.err.splitlines()
    assert said.code == 78
    assert len(lines) == 2
    assert any("retention.soft_cap" in line for line in lines)
    assert any("did you mean watch.mode?" in line for line in lines)


def test_check_json(sessiond, lab):
    lab.write_config('[watch]\nmod = "poll"\n')
    said = sessiond("config", "check", "--json")

    assert said.code == 78
    assert said.json["ok"] is False
    assert len(said.json["problems"]) == 1


def test_check_without_a_file_says_that_the_defaults_hold(sessiond):
    assert sessiond("config", "check") == (0, "no configuration file: the defaults hold\n", "")


def test_show_names_each_value_and_its_origin(sessiond, lab):
    lab.write_config('[retention]\nsoft_cap = "2GiB"\n')
    lines = {line.split()[0]: line for line in sessiond("config", "show").out.splitlines()}

    assert lines["retention.soft_cap"].split()[1:] == ['"2GiB"', "~/.config/sessiond/config.toml"]
    assert lines["watch.mode"].split()[1:] == ['"auto"', "default"]


def test_show_json(sessiond, lab):
    lab.write_config('[retention]\nsoft_cap = "2GiB"\n')
    told = sessiond("config", "show", "--json").json

    assert told["values"]["retention.soft_cap"]["value"] == "2GiB"
    assert told["values"]["retention.soft_cap"]["origin"].endswith("config.toml")
    assert {"as_of", "complete", "path", "files"} <= told.keys()


def test_path_names_the_files_in_their_order(sessiond, lab):
    lab.write_config("")
    folder = lab.user_home / ".config" / "sessiond"
    (folder / "config.d").mkdir()
    (folder / "config.d" / "10-mine.toml").write_text("")

    assert sessiond("config", "path").out.splitlines() == [
        str(folder / "config.toml"),
        str(folder / "config.d" / "10-mine.toml"),
    ]


def test_path_of_a_file_that_is_not_there_yet(sessiond, lab):
    said = sessiond("config", "path")

    assert said.out == f"{lab.user_home}/.config/sessiond/config.toml\n"
    assert said.err == "~/.config/sessiond/config.toml is not there yet: sessiond config init writes it\n"
