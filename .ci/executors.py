"""Executors for the checks of runs: each factory gives workers of another kind."""

import multiprocessing
import os
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor


def dask() -> Executor:
    """A Dask cluster on this machine."""
    from distributed import Client

    client = Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    found: Executor = client.get_executor()
    return found


def loky() -> Executor:
    """A pool of loky."""
    from loky import ProcessPoolExecutor

    found: Executor = ProcessPoolExecutor(2)
    return found


def threads() -> Executor:
    """Threads of the run's own process."""
    return ThreadPoolExecutor(3)


def spawned() -> Executor:
    """Processes that begin with nothing of the run's own."""
    return ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))


def dying() -> Executor:
    """Processes that end at once."""
    return ProcessPoolExecutor(2, initializer=os._exit, initargs=(1,))
