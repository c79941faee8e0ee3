"""The bounded memory, the uploads in it, and the line of visitors."""

from __future__ import annotations

import threading
import time

import pytest

from app.line import Line
from app.store import ByteStore
from app.uploads import PREFIX, Uploads, is_upload


def test_the_oldest_gives_way_and_use_keeps_young() -> None:
    store: ByteStore[str] = ByteStore(10)
    store.put("a", "A", 4)
    store.put("b", "B", 4)
    assert store.get("a") == "A"
    store.put("c", "C", 4)
    assert (store.get("a"), store.get("b"), store.get("c")) == ("A", None, "C")
    assert store.nbytes == 8


def test_what_is_larger_than_the_limit_is_not_kept_and_pushes_nothing_out() -> None:
    store: ByteStore[str] = ByteStore(10)
    store.put("a", "A", 10)
    store.put("b", "B", 11)
    assert (store.get("a"), store.get("b"), store.nbytes) == ("A", None, 10)


def test_a_value_that_is_put_again_counts_once() -> None:
    store: ByteStore[str] = ByteStore(10)
    store.put("a", "A", 6)
    store.put("a", "A2", 8)
    assert (store.get("a"), store.nbytes, len(store)) == ("A2", 8, 1)


def test_many_threads_never_pass_the_limit() -> None:
    store: ByteStore[int] = ByteStore(50)
    over = []

    def work(seed: int) -> None:
        for i in range(300):
            store.put((seed, i % 7), i, 5)
            store.get((seed, (i + 3) % 7))
            if store.nbytes > store.limit:
                over.append(store.nbytes)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not over
    assert store.nbytes == 5 * len(store)


def test_uploads_have_random_names_and_are_forgotten() -> None:
    uploads = Uploads(limit=10)
    first, second = uploads.keep(b"12345"), uploads.keep(b"12345")
    assert first != second
    assert first.startswith(PREFIX)
    assert len(first) >= 24
    assert is_upload(first)
    assert uploads.find(first) == b"12345"
    uploads.keep(b"123456789")
    assert uploads.find(second) is None
    assert uploads.find("u-never") is None


def test_first_come_first_served_and_each_is_told_the_place() -> None:
    line, order, told = Line(), [], []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with line.turn():
            inside.set()
            leave.wait(5)

    def later(name: str) -> None:
        with line.turn(lambda ahead: told.append((name, ahead))):
            order.append(name)

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert inside.wait(5)
    for place, name in enumerate(("second", "third"), start=2):
        threads.append(threading.Thread(target=later, args=(name,)))
        threads[-1].start()
        while len(line) < place:
            time.sleep(0.001)
    while ("third", 2) not in told:
        time.sleep(0.001)
    leave.set()
    for thread in threads:
        thread.join(5)
    assert order == ["second", "third"]
    assert ("second", 1) in told
    assert len(line) == 0


def test_the_line_goes_on_after_a_fault_and_after_one_who_leaves() -> None:
    line = Line()
    with pytest.raises(KeyError), line.turn():
        raise KeyError
    with line.turn():

        def gone(ahead: int) -> None:
            raise ConnectionAbortedError(ahead)

        with pytest.raises(ConnectionAbortedError), line.turn(gone):
            pytest.fail("it was not this visitor's turn")
    assert len(line) == 0
