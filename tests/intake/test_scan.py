"""The sweep: what is there, what changed, and what cannot be said."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sessiond.intake.scan import Changes, ClockGap, Pace, Remembered, Root, Seen, changes, sweep

PROJECT = Path(__file__).resolve().parents[2]


def wants(_root: Root, below: str) -> bool:
    return below.endswith(".jsonl")


def write(path: Path, data: bytes = b"{}\n") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)


def known(found) -> dict[str, Seen]:
    return {path: seen for path, (_, _, seen) in found.files.items()}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / "home" / "projects").mkdir(parents=True)
    return Root("heron", str(tmp_path / "home"), "projects")


def test_finds_wanted_files_with_their_path_below_the_home(root):
    path = write(Path(root.folder, "-x", "deep", "a.jsonl"), b"12345")
    write(Path(root.folder, "-x", "notes.txt"))
    write(Path(root.home, "beside.jsonl"))
    found = sweep([root], wants)

    facts = os.stat(path)
    seen = Seen(facts.st_dev, facts.st_ino, 5, facts.st_mtime_ns)
    assert found.files == {path: (root, "projects/-x/deep/a.jsonl", seen)}
    assert (found.directories, found.special, found.unreadable, found.absent) == (3, 0, {}, [])


def test_a_root_without_prefix_is_the_home_itself(tmp_path):
    root = Root("heron", str(tmp_path), "")
    path = write(tmp_path / "a.jsonl")

    assert sweep([root], wants).files[path][1] == "a.jsonl"


@pytest.mark.fault(35)
def test_absent_roots_are_named_and_nothing_below_them_is_missing(root, tmp_path):
    path = write(Path(root.folder, "a.jsonl"))
    before = known(sweep([root], wants))
    os.rename(root.home, tmp_path / "elsewhere")
    found = sweep([root], wants)

    assert found.absent == [root]
    assert changes(before, found) == Changes([], [], [])
    os.rename(tmp_path / "elsewhere", root.home)
    assert list(sweep([root], wants).files) == [path]


def test_a_root_that_is_a_file_is_absent(tmp_path):
    write(tmp_path / "projects")
    root = Root("heron", str(tmp_path), "projects")

    assert sweep([root], wants).absent == [root]


def test_new_changed_and_missing(root):
    folder = Path(root.folder)
    paths = {name: write(folder / f"{name}.jsonl") for name in ("same", "longer", "replaced", "touched", "gone")}
    write(folder / "sub" / "with-its-directory.jsonl")
    before = known(sweep([root], wants))
    (folder / "longer.jsonl").write_bytes(b"{}\n{}\n")
    os.rename(write(folder / "other.tmp"), paths["replaced"])
    os.utime(paths["replaced"], ns=(0, before[paths["replaced"]].mtime_ns))  # only the inode tells
    os.utime(paths["touched"], (1, 1))
    os.unlink(paths["gone"])
    os.unlink(folder / "sub" / "with-its-directory.jsonl")
    os.rmdir(folder / "sub")
    new = write(folder / "new.jsonl")
    result = changes(before, sweep([root], wants))

    assert result.new == [new]
    assert sorted(result.changed) == sorted(paths[name] for name in ("longer", "replaced", "touched"))
    assert sorted(result.missing) == sorted([paths["gone"], str(folder / "sub" / "with-its-directory.jsonl")])
    assert result


def test_nothing_changed_is_false(root):
    write(Path(root.folder, "a.jsonl"))
    found = sweep([root], wants)

    assert not changes(known(found), found)


@pytest.mark.fault(26)
def test_a_linked_root_is_resolved_and_names_real_paths(root, tmp_path):
    path = write(Path(root.folder, "a.jsonl"))
    os.symlink(root.home, tmp_path / "link")
    os.symlink(root.folder, tmp_path / "home" / "linked-folder")
    through_home = sweep([Root("heron", str(tmp_path / "link"), "projects")], wants)
    through_folder = sweep([Root("heron", root.home, "linked-folder")], wants)

    assert list(through_home.files) == list(through_folder.files) == [path]
    assert through_folder.files[path][1] == "linked-folder/a.jsonl"


@pytest.mark.fault(26)
def test_links_below_the_root_are_not_followed(root, tmp_path):
    outside = write(tmp_path / "outside" / "secret.jsonl")
    folder = Path(root.folder)
    inside = write(folder / "sub" / "a.jsonl")
    os.symlink(folder, folder / "sub" / "loop")
    os.symlink(tmp_path / "outside", folder / "way-out")
    os.symlink(outside, folder / "file-link.jsonl")
    os.symlink("nowhere", folder / "dangling.jsonl")
    found = sweep([root], wants)

    assert list(found.files) == [inside]
    assert found.special == 2, "both links that are named like session files"


@pytest.mark.fault(26)
def test_a_directory_swapped_for_a_link_takes_its_files_with_it(root, tmp_path):
    inside = write(Path(root.folder, "sub", "a.jsonl"))
    before = known(sweep([root], wants))
    os.rename(Path(root.folder, "sub"), tmp_path / "outside")
    os.symlink(tmp_path / "outside", Path(root.folder, "sub"))

    assert changes(before, sweep([root], wants)).missing == [inside]


@pytest.mark.fault(27)
def test_fifos_sockets_and_directories_named_like_sessions_are_passed_over(root):
    folder = Path(root.folder)
    os.mkfifo(folder / "pipe.jsonl")
    # Bound from within: the path of a Unix socket may be no longer than 107 bytes.
    here = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(folder)
        try:
            server.bind("socket.jsonl")
        finally:
            os.chdir(here)
    inside = write(folder / "directory.jsonl" / "a.jsonl")
    found = sweep([root], wants)

    assert list(found.files) == [inside]
    assert found.special == 2


@pytest.mark.parametrize("name", [b"new\nline", b"not-utf8-\xff\xfe", b"\xe2\x80\xaertl", b"n" * 249, b" -\\'\""])
@pytest.mark.fault(28)
def test_any_byte_name_works(root, name):
    path = os.path.join(os.fsencode(root.folder), name, name + b".jsonl")
    os.mkdir(os.path.dirname(path))
    with open(path, "wb"):
        pass
    found = sweep([root], wants)

    assert [os.fsencode(p) for p in found.files] == [path]
    assert not changes(known(found), found)


@pytest.mark.parametrize("mtime", [-(10**9), 0, 7_258_118_400])
@pytest.mark.fault(30)
def test_any_mtime_works(root, mtime):
    path = write(Path(root.folder, "a.jsonl"))
    os.utime(path, (mtime, mtime))

    assert sweep([root], wants).files[path][2].mtime_ns == mtime * 10**9


def test_where_roots_meet_the_first_that_wants_a_file_has_it(root):
    path = write(Path(root.folder, "sub", "a.jsonl"))
    inner = Root("egret", root.home, "projects/sub")

    assert sweep([root, inner], wants).files[path][0] == root
    assert sweep([inner, root], wants).files[path][0] == inner
    assert sweep([root, inner], lambda r, _: r == inner).files[path][0] == inner


# --- what cannot be observed: as another user, since root may read everything ---------------------

AS_NOBODY = """
import json, os, sys
import sessiond.intake.scan  # while the code can be read: the other user may have no way to it
home = sys.argv[1]
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
from sessiond.intake.scan import Root, changes, sweep
root = Root("heron", home, "projects")
wants = lambda root, below: below.endswith(".jsonl")
folder = root.folder
seen = sweep([root], wants)
known = {path: facts for path, (_, _, facts) in seen.files.items()}
def look():
    found = sweep([root], wants)
    result = changes(known, found)
    return {"files": len(found.files), "unreadable": found.unreadable, "missing": result.missing,
            "absent": len(found.absent)}
report = {"all": look()}
os.chmod(folder + "/closed", 0); report["closed"] = look(); os.chmod(folder + "/closed", 0o700)
os.chmod(folder + "/closed", 0o400); report["no_stat"] = look(); os.chmod(folder + "/closed", 0o700)
os.chmod(folder, 0); report["root_closed"] = look(); os.chmod(folder, 0o700)
os.chmod(home, 0); report["home_closed"] = look(); os.chmod(home, 0o700)
os.unlink(folder + "/open/b.jsonl"); os.chmod(folder + "/closed", 0)
report["one_gone"] = look(); os.chmod(folder + "/closed", 0o700)
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def report():
    # Not below tmp_path: its parents are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        write(home / "projects" / "closed" / "sub" / "a.jsonl")
        write(home / "projects" / "closed" / "c.jsonl")
        write(home / "projects" / "open" / "b.jsonl")
        os.chmod(folder, 0o755)
        if os.getuid() == 0:
            for path in (home, *home.rglob("*")):
                os.chown(path, 65534, 65534)
        run = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, str(home)],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == 0, run.stderr
        yield json.loads(run.stdout), str(home)


@pytest.mark.fault(34)
def test_below_an_unreadable_directory_nothing_is_missing(report):
    found, home = report
    assert found["all"] == {"files": 3, "unreadable": {}, "missing": [], "absent": 0}
    assert found["closed"]["unreadable"] == {f"{home}/projects/closed": "EACCES"}
    assert (found["closed"]["files"], found["closed"]["missing"]) == (1, [])


@pytest.mark.fault(34)
def test_names_that_cannot_be_statted_are_not_missing(report):
    found, home = report
    assert f"{home}/projects/closed" in found["no_stat"]["unreadable"]
    assert found["no_stat"]["missing"] == []


@pytest.mark.parametrize("case", ["root_closed", "home_closed"])
@pytest.mark.fault(34)
def test_below_an_unreadable_root_nothing_is_missing(report, case):
    found, home = report
    assert found[case] == {
        "files": 0,
        "unreadable": {f"{home}/projects": "EACCES"},
        "missing": [],
        "absent": 0,
    }


def test_a_deletion_beside_an_unreadable_directory_is_seen(report):
    found, home = report
    assert found["one_gone"]["missing"] == [f"{home}/projects/open/b.jsonl"]


@pytest.mark.fault(38)
def test_running_out_of_descriptors_makes_nothing_missing(root):
    import resource

    write(Path(root.folder, "sub", "a.jsonl"))
    before = known(sweep([root], wants))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open("/", os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        found = sweep([root], wants)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert found.unreadable == {root.folder: "EMFILE"}
    assert changes(before, found).missing == []


def test_a_tree_that_changes_under_the_sweep_does_no_harm(root):
    """Files and directories that vanish between the listing and the stat are just not there."""
    folder = Path(root.folder)
    for n in range(50):
        write(folder / f"d{n}" / "a.jsonl")

    def wants_and_destroys(_root: Root, below: str) -> bool:
        victim = folder.parent / below
        victim.unlink(missing_ok=True)
        other = folder / f"d{(int(victim.parent.name[1:]) + 1) % 50}"
        (other / "a.jsonl").unlink(missing_ok=True)
        if other.exists():
            other.rmdir()
        return True

    found = sweep([root], wants_and_destroys)

    assert found.files == {}
    assert found.unreadable == {}


def test_a_file_that_vanishes_before_its_stat_leaves_its_neighbours_seen(root):
    paths = [write(Path(root.folder, f"{n}.jsonl")) for n in range(20)]
    victims = []

    def wants_and_takes_the_third(_root: Root, below: str) -> bool:
        if len(victims) < 3:
            victims.append(str(Path(root.home, below)))
            if len(victims) == 3:
                os.unlink(victims[2])
        return True

    found = sweep([root], wants_and_takes_the_third)

    assert set(found.files) == set(paths) - {victims[2]}


# --- asking once ----------------------------------------------------------------------------------


def test_remembered_asks_once_about_what_is_not_wanted(root):
    asked = []

    def ask(root: Root, below: str) -> bool:
        asked.append((root.flavor, below))
        return root.flavor == "heron"

    remembered = Remembered(ask)
    other = Root("egret", root.home, "projects")
    for _ in range(3):
        assert remembered(root, "projects/a") is True
        assert remembered(other, "projects/a") is False

    assert asked.count(("egret", "projects/a")) == 1
    assert asked.count(("heron", "projects/a")) == 3


# --- pace -----------------------------------------------------------------------------------------


def swept(pace: Pace, now: float, *, changed=False, watched=True, took=0.0) -> float:
    pace.begin(now)
    pace.finish(now + took, changed=changed, watched=watched)
    return pace.wait(now + took)


def test_the_first_sweep_is_due_at_once():
    assert Pace().due(1000.0)


def test_quiet_sweeps_become_rare_and_a_change_brings_them_back():
    pace = Pace()
    now, waits = 0.0, []
    for _ in range(6):
        waits.append(swept(pace, now))
        assert not pace.due(now + waits[-1] - 1)
        now += waits[-1]
        assert pace.due(now)

    assert waits == [30, 60, 120, 240, 300, 300]
    assert swept(pace, now, changed=True) == 30


def test_a_hint_brings_the_base_interval_back():
    pace = Pace()
    now = 0.0
    for _ in range(5):
        now += swept(pace, now)
    last = now - 300
    assert pace.wait(last + 10) == 290
    pace.hinted()

    assert pace.wait(last + 10) == 20
    assert pace.due(last + 31)
    assert swept(pace, last + 31) == 30, "and the one after it is at the base interval as well"
    assert swept(pace, last + 61) == 60


def test_hurry_is_due_at_once_and_says_why():
    pace = Pace()
    swept(pace, 0.0)
    pace.hurry("overflow")
    pace.hurry("root_changed")
    pace.hurry("overflow")

    assert pace.due(0.1)
    assert pace.begin(0.1) == ("overflow", "root_changed")
    pace.finish(0.2, changed=False, watched=True)
    assert not pace.due(1.0)


def test_what_comes_during_a_sweep_counts_for_the_next():
    pace = Pace()
    pace.begin(0.0)
    pace.hurry("overflow")
    pace.finish(0.1, changed=False, watched=True)

    assert pace.due(0.1)
    assert pace.begin(0.1) == ("overflow",)


def test_a_storm_of_reasons_gets_a_sweep_a_second_and_less_where_sweeps_are_long():
    pace = Pace()
    swept(pace, 0.0)
    pace.hurry("directory_changed")
    pace.begin(5.0)
    pace.finish(5.03, changed=True, watched=True)
    pace.hurry("directory_changed")
    assert pace.wait(5.03) == pytest.approx(1.0)
    pace.begin(6.03)
    pace.finish(6.53, changed=True, watched=True)  # took half a second
    pace.hurry("directory_changed")
    assert pace.wait(6.53) == pytest.approx(5.0)


def test_without_a_whole_watch_the_interval_is_that_of_polling():
    pace = Pace(poll=2.0)
    assert swept(pace, 0.0, watched=False) == 2
    assert swept(pace, 2.0, watched=False, changed=True) == 2
    assert swept(pace, 4.0, watched=False, took=1.0) == 20, "a sweep of a second is not made every two seconds"
    assert swept(pace, 30.0, watched=True) == 40  # and out of it again
    assert swept(pace, 80.0, watched=True, changed=True) == 30


@pytest.mark.fault(50)
def test_a_clock_gap_is_noticed_once_in_both_directions():
    clock = ClockGap()
    assert not clock.check(100.0, 5000.0)
    assert not clock.check(101.0, 5001.5)
    assert not clock.check(200.0, 5159.0), "58 seconds are not enough"
    assert clock.check(201.0, 5300.0), "the machine slept"
    assert not clock.check(202.0, 5301.0)
    assert clock.check(203.0, 1000.0), "the clock was set back"
    assert not clock.check(204.0, 1001.0)
