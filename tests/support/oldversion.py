"""Programs of an earlier version, as its commit has them, on this version's dependencies."""

import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.processes import Record
from provisioner.lab.harness.workload import REPOSITORY

FIRST_VERSION = "11f73b5"
_PACKAGES = ("webhook", "extender", "provisioner", "certs", "manifests")


class OldVersion:
    """The sources of one commit in a folder of their own; they come from this checkout's history.

    Raises:
        AssertionError: the history is not there (a shallow clone).
    """

    def __init__(self, folder: Path, commit: str = FIRST_VERSION) -> None:
        asked = subprocess.run(
            ["git", "-C", str(REPOSITORY), "archive", commit, *_PACKAGES], capture_output=True, check=False
        )
        assert asked.returncode == 0, (
            f"the upgrade is tested from commit {commit}, which this clone lacks; fetch the whole history "
            f"(git fetch --unshallow): {asked.stderr.decode(errors='replace').strip()}"
        )
        with tarfile.open(fileobj=BytesIO(asked.stdout)) as archive:
            archive.extractall(folder, filter="data")
        self.folder, self.commit = folder, commit

    def start(self, cluster: DevCluster, name: str, arguments: tuple[str, ...], environment: dict[str, str]) -> Record:
        """Run one of its programs as part of a dev cluster."""
        paths = os.pathsep.join([str(self.folder), *filter(None, [environment.get("PYTHONPATH")])])
        command = [sys.executable, "-c", _START, *arguments]
        return cluster.start_program(name, command, {**environment, "PYTHONPATH": paths})


_START = """
import os, sys
sys.path[:] = [path for path in sys.path if path not in ("", os.getcwd())]
import provisioner.cli.main as main
assert os.path.realpath(main.__file__).startswith(os.path.realpath(os.environ["PYTHONPATH"].split(os.pathsep)[0]))
main.main()
"""
