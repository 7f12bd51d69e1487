"""A Ray of our own on this machine: private, quiet, small, and gone when we stop.

Ray reads its settings from the environment when it is imported and when its processes start, so
everything here is set before the first `import ray` and put back at the end.
"""

from __future__ import annotations

import logging
import math
import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.serving_checks import check_gpus

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 128 << 20
"""Tokens and features never pass through the object store; Ray wants some of it all the same."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    # Serve gives up a proxy that is not ready in 5 s; a busy machine needs longer to start one.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    # The rest keeps an idle server idle: Ray's and Serve's own timers, ten a second by default.
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "10000",
    "RAY_SERVE_EVENT_LOOP_MONITORING_INTERVAL_S": "60",
    "RAY_LOG_MONITOR_MANY_FILES_THRESHOLD": "0",
    "LOG_NAME_UPDATE_INTERVAL_S": "10",
    "RAY_enable_metrics_collection": "0",
    "RAY_metrics_report_interval_ms": "60000",
    "RAY_task_events_report_interval_ms": "0",
    "RAY_event_stats": "0",
    "RAY_raylet_report_resources_period_milliseconds": "1000",
    "RAY_gcs_pull_resource_loads_period_milliseconds": "5000",
}


def usable_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> int:
    """GPUs of this machine as Ray will count them."""
    from ray._private.accelerators import get_accelerator_manager_for_resource

    manager = get_accelerator_manager_for_resource("GPU")
    return 0 if manager is None else int(manager.get_current_node_num_accelerators())


def logical_cpus(wanted: float, cores: int) -> int:
    """What the local Ray is told it has.

    Ray's CPUs are admission tickets, not cores: it starts nothing it has no ticket for. On one
    machine the parts of the application are mostly idle or wait for each other (a drafter drafts
    while its verifier does not), so a small machine gets as many tickets as the application asks
    for; torch threads are pinned by their own settings.
    """
    return max(cores, math.ceil(wanted))


def private_token(environ: Mapping[str, str]) -> dict[str, str]:
    """A fresh token for a cluster of its own, for Ray listens on the machine's address; nothing
    where `environ` says already how to authenticate. Ray's own default would write a token into
    the home folder."""
    if {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & environ.keys():
        return {}
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def environment() -> Iterator[None]:
    """Ray's settings for a private cluster; what the user has set stays as it is."""
    settings = _QUIET | private_token(os.environ)
    settings["PYTHONPATH"] = _import_path()
    before = {name: os.environ.get(name) for name in settings}
    for name, value in settings.items():
        if name == "PYTHONPATH" or name not in os.environ:
            os.environ[name] = value
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old


def _import_path() -> str:
    """PYTHONPATH with the folder our packages lie in: workers start elsewhere, and a checkout
    that is not installed must serve as well as a wheel."""
    root = str(Path(__file__).resolve().parent.parent)
    paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if root not in paths and "site-packages" not in root:
        paths.append(root)
    return os.pathsep.join(paths)


class RayThread:
    """The thread that starts Ray and ends it.

    Not the main thread, where Ray would replace the program's SIGTERM handler by one that raises
    SystemExit wherever the program happens to be. And one that lives as long as Ray: the kernel
    ends Ray's processes when the thread that started them ends.
    """

    def __init__(self, **options: Any) -> None:
        """`ray.init(**options)`."""
        import ray

        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ray")
        try:
            self._thread.submit(ray.init, **options).result()
        except BaseException:
            self.stop()
            raise
        if threading.current_thread() is threading.main_thread():
            # Ray's C++ side has put a handler of its own that aborts; ours goes back.
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))

    def stop(self) -> None:
        import ray

        self._thread.submit(ray.shutdown).result()
        self._thread.shutdown()


def _keep_messages_off_the_terminal() -> None:
    """Ray prints some of its errors to our standard output, `log_to_driver` or not, and there is
    no setting for it; the same lines are in its log files."""
    from ray._private import worker

    def to_the_log(data: dict[str, Any], ignore_prefix: bool) -> None:
        logger.debug("ray: %s", data.get("lines"))

    worker.print_to_stdstream = to_the_log


class LocalRay:
    """One private Ray; `stop` leaves neither processes nor files."""

    def __init__(
        self, num_cpus: float, num_gpus: float = 0.0, *, pretend_gpus: bool = False
    ) -> None:
        """Start it. num_cpus, num_gpus: what the application asks for, in Ray's units.

        pretend_gpus: Ray places work as if there were `num_gpus`, for tests of placement.

        Raises ServingError when there are fewer GPUs, and whatever Ray raises when it cannot start.
        """
        import ray

        # Socket paths below it must stay under 107 bytes, hence a short base.
        base = "/tmp" if sys.platform != "win32" and os.access("/tmp", os.W_OK) else None
        self._folder = Path(tempfile.mkdtemp(prefix="pf-", dir=base))
        try:
            self._ray = RayThread(
                address="local",
                num_cpus=logical_cpus(num_cpus, usable_cores()),
                num_gpus=math.ceil(num_gpus) if pretend_gpus else None,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=str(self._folder),
            )
        except BaseException:
            self._remove()
            raise
        _keep_messages_off_the_terminal()
        try:
            check_gpus(num_gpus, int(ray.cluster_resources().get("GPU", 0.0)))
        except BaseException:
            self.stop()
            raise

    @property
    def logs(self) -> Path:
        return self._folder / "session_latest" / "logs"

    def stop(self) -> None:
        self._ray.stop()
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
