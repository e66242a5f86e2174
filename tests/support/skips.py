"""A test that cannot run here is skipped and named; in CI, where the environment has `CI`, it fails.

What may be absent is the network, and with it the tools that are built from the Go proxy. What a machine is not made with, and no file of the
project installs (IPv6, terraform), is named, but fails nowhere: reasons that begin with `MACHINE`.
"""

import functools
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Final, TypeVar

import pytest

from provisioner.lab.devcluster.errors import DevClusterError

Build = Callable[[], Mapping[str, Path]]
MACHINE: Final = "this machine has no "
Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)


class NoSkips:
    """A plugin of pytest: every skip is a failure, that of a whole module too."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        return failing((yield))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        return failing((yield))


def failing(report: Report) -> Report:
    """The report, failed if it is one of a skip that need not be; an expected failure is none."""
    if report.outcome == "skipped" and not hasattr(report, "wasxfail") and MACHINE not in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report


def built(build: Build) -> Mapping[str, Path]:
    """What it builds, by name; the test is skipped where that fails. It is called once a process: without a network, each try may wait for it."""
    found = _tried(build)
    if isinstance(found, DevClusterError):
        pytest.skip(f"cannot be built: {found}")
    return found


@functools.cache
def _tried(build: Build) -> Mapping[str, Path] | DevClusterError:
    try:
        return build()
    except DevClusterError as error:
        return error
