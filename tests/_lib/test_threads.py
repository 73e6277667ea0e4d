"""Threads: their number, and work on blocks in order."""

import threading
import time

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from soc_pymc._lib.errors import SocError
from soc_pymc._lib.threads import VARIABLE, one_blas_thread, ordered_map, ready_ahead, threads


@pytest.fixture(params=[1, 2, 3])
def number(request, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(request.param))
    return request.param


def test_results_come_in_order(number):
    def slowest_first(block):
        time.sleep(0.002 * (6 - block))
        return block, threading.get_ident()

    found = list(ordered_map(slowest_first, range(6)))
    assert [block for block, _ in found] == list(range(6))
    assert (len({thread for _, thread in found}) > 1) == (number > 1)


def test_few_blocks_are_taken_before_their_turn(number):
    taken = []

    def blocks():
        for block in range(30):
            taken.append(block)
            yield block

    for done, _ in enumerate(ordered_map(abs, blocks(), ahead=2)):
        assert len(taken) - done <= number + 2
    assert len(taken) == 30


def test_the_first_error_is_raised_and_later_blocks_are_left(number):
    begun = []

    def work(block):
        begun.append(block)
        time.sleep(0.001)
        if block in (3, 4):
            raise ValueError(str(block))
        return block

    done = []
    with pytest.raises(ValueError, match="3"):
        done.extend(ordered_map(work, range(100)))
    assert max(begun) <= 3 + number + 2


def test_work_inside_work_stays_in_its_thread(number):
    def work(_):
        inner = set(ordered_map(lambda _: threading.get_ident(), range(4)))
        return inner == {threading.get_ident()}

    assert number == 1 or all(ordered_map(work, range(4)))


def test_blas_has_one_thread_inside_and_its_own_number_again_afterwards(number):
    def of_blas(_=None):
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    with threadpool_limits(limits=2, user_api="blas"):
        before = of_blas()
        decorated = one_blas_thread(of_blas)()
        first = ordered_map(of_blas, range(4))
        second = ordered_map(of_blas, range(4))
        inside = [next(first), next(second), *first, *second]  # calls that overlap
        assert of_blas() == before
    assert before
    assert {n for own in [decorated, *inside] for n in own} == {1}


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5", "1e3", "99999999999", "²"])
def test_a_wrong_number_is_one_error(given, monkeypatch):
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(SocError, match=f"{VARIABLE}='.*' must be a whole number from 1 to 1,024"):
        threads()


def test_all_usable_processors_without_the_variable(monkeypatch):
    for given in (None, "", " "):
        monkeypatch.delenv(VARIABLE, raising=False) if given is None else monkeypatch.setenv(
            VARIABLE, given
        )
        assert threads() >= 1
    monkeypatch.setenv(VARIABLE, " 7 ")
    assert threads() == 7


def test_the_next_block_is_made_while_one_is_in_use(number):
    made = []

    def blocks():
        for block in range(4):
            made.append(block)
            yield block
        raise OSError("the disk is gone")

    ready = ready_ahead(blocks())
    for block in range(4):
        assert next(ready) == block
        assert len(made) <= block + (1 if number == 1 else 2)
    with pytest.raises(OSError, match="gone"):
        next(ready)
