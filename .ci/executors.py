"""Executors for the checks of runs: each factory gives workers of another kind."""

from concurrent.futures import Executor, ThreadPoolExecutor


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
