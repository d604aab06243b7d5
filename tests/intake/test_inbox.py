"""Paths waiting to be read: each once, live before history."""

from __future__ import annotations

import threading
import time

from hypothesis import given, strategies as st

from sessiond.intake.inbox import Inbox, Lane

LIVE, BACKFILL = Lane.LIVE, Lane.BACKFILL


def drain(inbox: Inbox) -> list[str]:
    order = []
    while (taken := inbox.take(0)) is not None:
        order.append(taken[0])
        inbox.done(taken[0])
    return order


def test_a_path_waits_at_most_once():
    inbox = Inbox()
    for _ in range(3):
        inbox.put("a", LIVE)
        inbox.put("b", BACKFILL, 1)

    assert (inbox.waiting(LIVE), inbox.waiting(BACKFILL)) == (1, 1)
    assert drain(inbox) == ["a", "b"]
    assert inbox.is_idle


def test_live_goes_before_backfill_and_backfill_newest_first():
    inbox = Inbox()
    for path, mtime in (("old", 1), ("newest", 9), ("before-1970", -5), ("newer", 7)):
        inbox.put(path, BACKFILL, mtime)
    inbox.put("live-1", LIVE)
    inbox.put("live-2", LIVE)

    assert drain(inbox) == ["live-1", "live-2", "newest", "newer", "old", "before-1970"]


def test_a_hint_lifts_a_backfill_path_into_the_live_lane_and_never_back():
    inbox = Inbox()
    inbox.put("a", BACKFILL, 5)
    inbox.put("a", LIVE)
    inbox.put("a", BACKFILL, 9)

    assert inbox.take(0) == ("a", LIVE)
    assert inbox.take(0) is None


def test_live_files_take_turns():
    inbox = Inbox()
    for path in ("a", "b", "c"):
        inbox.put(path, LIVE)
    order = []
    for _ in range(6):
        path, _lane = inbox.take(0)
        order.append(path)
        inbox.put_back(path)

    assert order == ["a", "b", "c", "a", "b", "c"]


def test_a_backfill_file_is_read_to_its_end_before_the_next_even_a_newer_one():
    inbox = Inbox()
    inbox.put("first", BACKFILL, 5)
    assert inbox.take(0) == ("first", BACKFILL)
    inbox.put("newer", BACKFILL, 9)
    inbox.put_back("first")
    assert inbox.take(0) == ("first", BACKFILL)
    inbox.put("live", LIVE)
    inbox.put_back("first")

    assert drain(inbox) == ["live", "first", "newer"]


def test_a_put_while_the_path_is_being_read_is_remembered():
    inbox = Inbox()
    inbox.put("a", LIVE)
    inbox.take(0)
    inbox.put("a", LIVE)
    assert inbox.take(0) is None, "it is being read: nobody else may have it"
    inbox.done("a")

    assert inbox.take(0) == ("a", LIVE)
    inbox.done("a")
    assert inbox.is_idle


def test_a_hint_during_backfill_makes_the_rest_of_the_file_live():
    inbox = Inbox()
    inbox.put("a", BACKFILL, 5)
    inbox.take(0)
    inbox.put("a", LIVE)
    inbox.put_back("a")

    assert inbox.take(0) == ("a", LIVE)
    inbox.done("a")
    assert inbox.is_idle


def test_a_file_begun_in_backfill_loses_its_turn_there_once_it_went_live():
    inbox = Inbox()
    inbox.put("a", BACKFILL, 5)
    inbox.take(0)
    inbox.put_back("a")
    inbox.put("a", LIVE)
    assert inbox.take(0) == ("a", LIVE)
    inbox.done("a")
    inbox.put("newer", BACKFILL, 9)
    inbox.put("a", BACKFILL, 5)

    assert drain(inbox) == ["newer", "a"]


def test_take_waits_for_a_put_from_another_thread():
    inbox = Inbox()
    putter = threading.Timer(0.05, inbox.put, ("a", LIVE))
    putter.start()

    assert inbox.take(10) == ("a", LIVE)
    putter.join()


def test_wake_ends_the_wait_of_this_take_or_the_next_but_of_one_only():
    inbox = Inbox()
    inbox.wake()
    began = time.monotonic()
    assert inbox.take(10) is None
    waker = threading.Timer(0.05, inbox.wake)
    waker.start()
    assert inbox.take(10) is None
    assert time.monotonic() - began < 5
    waker.join()
    putter = threading.Timer(0.05, inbox.put, ("a", LIVE))
    putter.start()

    assert inbox.take(10) == ("a", LIVE), "the wake was used up: this one waits"
    putter.join()


def test_wake_does_not_hide_a_path():
    inbox = Inbox()
    inbox.put("a", LIVE)
    inbox.wake()

    assert inbox.take(0) == ("a", LIVE)


def test_memory_is_bounded_by_the_distinct_paths():
    inbox = Inbox()
    for n in range(10_000):
        inbox.put(f"p{n % 10}", BACKFILL, n)  # newer each time
    inbox.put("big", BACKFILL, 10**6)
    for _ in range(10_000):
        path, _lane = inbox.take(0)
        inbox.put_back(path)

    assert len(inbox._newest) < 200
    assert len(inbox._begun) <= 1
    assert inbox.waiting(BACKFILL) == 11


def test_many_threads_lose_nothing():
    inbox, seen, lock = Inbox(), set(), threading.Lock()
    written = {f"{t}-{n}" for t in range(4) for n in range(500)}

    def put(number: int) -> None:
        for n in range(500):
            inbox.put(f"{number}-{n}", LIVE if n % 2 else BACKFILL, n)

    def take() -> None:
        while len(seen) < len(written):
            if (taken := inbox.take(0.05)) is not None:
                with lock:
                    seen.add(taken[0])
                inbox.done(taken[0])

    threads = [threading.Thread(target=put, args=(n,)) for n in range(4)]
    threads += [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert seen == written
    assert inbox.is_idle


STEPS = st.lists(
    st.tuples(st.sampled_from(["live", "backfill", "take", "done", "more"]), st.sampled_from("abc"), st.integers(-2, 3))
)


@given(STEPS)
def test_after_any_history_every_put_path_comes_out_once_live_first(steps):
    inbox, owed, taken = Inbox(), {}, None
    for verb, path, mtime in steps:
        if verb in ("live", "backfill"):
            lane = LIVE if verb == "live" else BACKFILL
            inbox.put(path, lane, mtime)
            owed[path] = min(owed.get(path, lane), lane)
        elif verb == "take" and taken is None:
            taken = inbox.take(0)
            assert (taken is None) == (not owed)
            if taken is not None:
                assert taken[1] == min(owed.values()) == owed.pop(taken[0])
        elif taken is not None and verb in ("done", "more"):
            if verb == "more":
                inbox.put_back(taken[0])
                owed[taken[0]] = min(owed.get(taken[0], taken[1]), taken[1])
            else:
                inbox.done(taken[0])
            taken = None
        waits = {p: lane for p, lane in owed.items() if taken is None or p != taken[0]}
        assert inbox.waiting(LIVE) == sum(lane is LIVE for lane in waits.values())
        assert inbox.waiting(BACKFILL) == sum(lane is BACKFILL for lane in waits.values())
    if taken is not None:
        inbox.done(taken[0])

    assert sorted(drain(inbox)) == sorted(owed)
