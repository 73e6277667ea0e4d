"""Work in threads: results in order, bounded memory, errors, and one thread of BLAS."""

import linecache
import os
import sys
import threading
import time

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import soc_pymc as soc
from soc_pymc._lib.work import THREADS, one_blas_thread, ordered_map, threads


@pytest.fixture(params=[1, 3])
def number(request, monkeypatch):
    monkeypatch.setenv(THREADS, str(request.param))
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


def of_blas(_=None):
    """Returns the numbers of threads of the libraries of BLAS."""
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


@pytest.fixture
def two_of_blas():
    with threadpool_limits(limits=2, user_api="blas"):
        assert of_blas() == {2}
        yield


@pytest.mark.usefixtures("two_of_blas")
def test_blas_has_one_thread_inside_and_its_own_number_once_a_generator_rests(number):
    begun = []

    def block(k):
        begun.append(k)
        return of_blas()

    abandoned = ordered_map(block, range(4))
    inside = [next(abandoned)]
    # between two blocks it has two threads, so all must have begun: one where the caller works
    expected = 1 if number == 1 else 4
    end = time.monotonic() + 10
    while (len(begun) < expected or of_blas() != {2}) and time.monotonic() < end:
        time.sleep(0.01)
    assert of_blas() == {2}
    inside += [*ordered_map(of_blas, range(4)), *abandoned]
    assert inside == [{1}] * 8
    assert of_blas() == {2}


@pytest.mark.usefixtures("two_of_blas")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_overlapping_calls_end_in_either_order(order):
    begun, ends = threading.Barrier(3), [threading.Event(), threading.Event()]

    @one_blas_thread
    def call(k):
        begun.wait(10)
        ends[k].wait(10)

    calls = [threading.Thread(target=call, args=(k,)) for k in range(2)]
    for thread in calls:
        thread.start()
    begun.wait(10)
    for k, left in zip(order, ({1}, {2}), strict=True):
        ends[k].set()
        calls[k].join()
        assert of_blas() == left


@pytest.mark.usefixtures("two_of_blas")
def test_a_process_that_is_forked_within_a_call_has_no_limit():
    @one_blas_thread
    def status():
        if not (child := os.fork()):
            os._exit(of_blas() != {2})
        return os.waitpid(child, 0)[1]

    assert status() == 0


@pytest.mark.slow
@pytest.mark.usefixtures("two_of_blas")
def test_an_interrupt_anywhere_leaves_no_limit():
    call = one_blas_thread(of_blas)
    lines = 0

    def trace(frame, event, _):
        nonlocal lines
        if frame.f_code.co_filename != one_blas_thread.__code__.co_filename:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        # a signal comes at calls, never between a lock or a `try` and the block behind it
        lines += event != "return" and not line.lstrip().startswith(("with ", "try:"))
        if lines == last:
            raise KeyboardInterrupt
        return trace

    for last in range(1, 200):
        lines, before = 0, sys.gettrace()
        sys.settrace(trace)
        try:
            call()
        except KeyboardInterrupt:
            interrupted = last
        finally:
            sys.settrace(before)
        assert of_blas() == {2}, last
    assert 20 < interrupted < 199  # every line of entering and leaving


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "99999999999", "²"])
def test_a_wrong_number_is_one_error(text, monkeypatch):
    monkeypatch.setenv(THREADS, text)
    with pytest.raises(soc.SocError, match=THREADS):
        threads()
    monkeypatch.setenv(THREADS, " 7 ")
    assert threads() == 7
    monkeypatch.delenv(THREADS)
    assert threads() >= 1
