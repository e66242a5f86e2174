"""An EC2 of its own for a session: the tests' emulator in a process beside the dev cluster; only a checkout has it.

Instances that boot there become kwok Nodes of the dev cluster, from their user data alone. boto3 is told of it by its own
variables and by nothing else.
"""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from provisioner.lab.devcluster import versions
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness.programs import ProgramError
from provisioner.lab.harness.workload import REPOSITORY

REGION: Final = "us-west-2"
CLUSTER_NAME: Final = "my-cluster"
"""As in manifests/examples/aws."""

ZONES: Final = {f"test-zone-{letter}": f"{REGION}{letter}" for letter in "abcd"}
"""What the zones of the example workload, which are kwok's, are called there."""

_MODULE: Final = "tests.support.ec2"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 5.0


class EmulatedEc2:
    """A running emulator; it ends with `stop`, or when this process does."""

    def __init__(self, process: "subprocess.Popen[bytes]", endpoint: str) -> None:
        self._process, self.endpoint = process, endpoint

    @classmethod
    def start(cls, cluster: DevCluster, authority: bytes, log: Path) -> Self:
        """Start one whose instances join `cluster`, which they trust by `authority` (a PEM file).

        Raises:
            ProgramError: it did not come up; the message holds the end of its log.
        """
        setup = {
            "name": CLUSTER_NAME,
            "endpoint": cluster.host,
            "ca_bundle": base64.b64encode(authority).decode(),
            "kubeconfig": str(cluster.kubeconfig),
            "region": REGION,
            "version": versions.chosen_minor(os.environ),
        }
        with log.open("ab") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, json.dumps(setup)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=sink,
                cwd=REPOSITORY,
            )
        if process.stdout is None:
            raise TypeError("a pipe was asked for")
        timer = threading.Timer(_START_SECONDS, process.kill)
        timer.start()
        try:
            line = process.stdout.readline()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
        if not line:
            process.wait()
            raise ProgramError(f"EC2 did not come up; its log:\n{log.read_text(errors='replace')[-2000:].strip()}")
        return cls(process, str(json.loads(line)["endpoint"]))

    def stop(self) -> None:
        """End it; closing its input is enough."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def environment(self) -> Mapping[str, str]:
        """What makes an unmodified boto3 call it, and nobody else."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "AKIAEMULATEDEXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "emulated/secret/of/nobody",
            "AWS_CONFIG_FILE": "/nonexistent/config",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1,localhost",
        }


def flags(cluster: DevCluster) -> Mapping[str, str]:
    """Of a provisioner that launches instances for the cluster."""
    return {
        "--provider": "aws",
        "--cluster-name": CLUSTER_NAME,
        "--cluster-endpoint": cluster.host,
        "--interruption-queue": CLUSTER_NAME,
    }
