"""Work on several threads gives what a loop gives, and leaves torch's settings as they were."""

import threading
import time

import pytest
import torch

from topofl._support.threads import worker_threads


@pytest.fixture
def two_torch_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 7])
def test_results_come_in_the_order_of_the_items(workers, count):
    last_first = [threading.Event() for _ in range(count + 1)]
    last_first[-1].set()

    def square(i):
        if workers >= count:  # then all run at once, and item i ends after item i + 1
            assert last_first[i + 1].wait(10)
        last_first[i].set()
        return i * i

    with worker_threads(workers) as parallel_map:
        assert parallel_map(square, range(count)) == [i * i for i in range(count)]
        again = parallel_map(str, range(count))  # the context serves more than one call
        assert again == [str(i) for i in range(count)]


def test_items_run_on_as_many_threads_at_once():
    together = threading.Barrier(3, timeout=10)
    with worker_threads(3) as parallel_map:
        parallel_map(lambda _: together.wait(), range(6))


def test_one_worker_is_the_calling_thread(two_torch_threads):
    here = threading.get_ident()
    with worker_threads(1) as parallel_map:
        assert parallel_map(lambda _: threading.get_ident(), range(3)) == [here] * 3
        assert parallel_map(lambda _: torch.get_num_threads(), [0]) == [two_torch_threads]


def test_workers_have_one_torch_thread_each(two_torch_threads):
    with worker_threads(2) as parallel_map:
        assert parallel_map(lambda _: torch.get_num_threads(), range(8)) == [1] * 8
    assert torch.get_num_threads() == two_torch_threads


@pytest.mark.parametrize("workers", [1, 2])
def test_exceptions_come_out_and_settings_are_restored(workers, two_torch_threads):
    threads = threading.active_count()

    def fail(i):
        if i in (2, 3):
            raise ArithmeticError(f"item {i}")
        return i

    with pytest.raises(ArithmeticError, match="item 2"), worker_threads(workers) as parallel_map:
        parallel_map(fail, range(5))
    with pytest.raises(KeyError), worker_threads(workers):
        raise KeyError
    assert torch.get_num_threads() == two_torch_threads
    assert threading.active_count() == threads, "no thread is left behind"


def test_items_that_have_not_started_are_dropped_after_an_exception():
    started, ended = [], []

    def work(i):
        started.append(i)
        if i == 0:
            raise ArithmeticError
        time.sleep(0.1)
        ended.append(i)

    with worker_threads(2) as parallel_map, pytest.raises(ArithmeticError):
        parallel_map(work, range(100))
    assert len(started) < 100
    assert set(started) - {0} == set(ended), "the exception comes when all others have ended"


@pytest.mark.parametrize(
    ("errors", "wanted"),
    [
        ((ArithmeticError, LookupError), ArithmeticError),
        ((ArithmeticError, KeyboardInterrupt), KeyboardInterrupt),
        ((KeyboardInterrupt, ArithmeticError), KeyboardInterrupt),
    ],
)
def test_the_first_exception_is_raised_but_interrupts_before_it(errors, wanted):
    together = threading.Barrier(2, timeout=10)

    def fail(i):
        together.wait()
        raise errors[i]

    with worker_threads(2) as parallel_map, pytest.raises(wanted):
        parallel_map(fail, range(2))
