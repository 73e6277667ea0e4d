"""Work in threads: results in order, bounded memory, errors, and one thread of BLAS."""

import threading
import time

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import soc_pymc as soc
from soc_pymc._lib.threads import VARIABLE, ordered_map, ready_ahead, threads


@pytest.fixture(params=[1, 3])
def number(request, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(request.param))
    return request.param


def test_results_come_in_order_and_few_blocks_before_their_turn(number):
    taken = []

    def blocks():
        for block in range(20):
            taken.append(block)
            yield block

    def work(block):
        time.sleep(0.001 * (block % 3))
        return block, threading.get_ident()

    results = []
    for done, result in enumerate(ordered_map(work, blocks(), ahead=2)):
        assert len(taken) - done <= number + 2
        results.append(result)
    assert [block for block, _ in results] == list(range(20))
    assert (len({thread for _, thread in results}) > 1) == (number > 1)


def test_the_first_error_is_raised_and_later_blocks_are_left(number):
    begun = []

    def work(block):
        begun.append(block)
        time.sleep(0.001)
        if block in (3, 4):
            raise ValueError(str(block))

    with pytest.raises(ValueError, match="3"):
        list(ordered_map(work, range(100)))
    assert max(begun) <= 3 + number + 2


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


def test_blas_has_one_thread_inside_and_its_own_number_again_afterwards(number):
    def of_blas(_=None):
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    with threadpool_limits(limits=2, user_api="blas"):
        before = of_blas()
        overlapping = ordered_map(of_blas, range(4)), ordered_map(of_blas, range(4))
        inside = [next(overlapping[0]), next(overlapping[1]), *overlapping[0], *overlapping[1]]
        assert of_blas() == before
    assert before
    assert {n for counts in inside for n in counts} == {1}


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "99999999999", "²"])
def test_a_wrong_number_is_one_error(text, monkeypatch):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(soc.SocError, match=VARIABLE):
        threads()
    monkeypatch.setenv(VARIABLE, " 7 ")
    assert threads() == 7
    monkeypatch.delenv(VARIABLE)
    assert threads() >= 1
