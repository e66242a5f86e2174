"""An EC2 of its own for a session: the tests' emulator in a process beside the dev cluster, started with the checkout only.

Machines that boot there become kwok Nodes of the dev cluster, from their user data alone. boto3 is told of it by its own
variables and nothing else.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Final

from provisioner.cli.harness.programs import Program
from provisioner.devcluster.cluster import DevCluster

EC2: Final = "ec2"
REGION: Final = "us-west-2"
CLUSTER_NAME: Final = "my-cluster"
"""As in manifests/examples/aws."""

READY_PATH: Final = "/_ec2/ready"
_MODULE: Final = "tests.support.ec2"


def emulator(cluster: DevCluster, authority: bytes, port: int, ready: Callable[[], bool]) -> Program:
    """The program; machines of its EC2 join `cluster`, which they trust by `authority` (a PEM file)."""
    setup = {
        "name": CLUSTER_NAME,
        "endpoint": cluster.host,
        "ca_bundle": base64.b64encode(authority).decode(),
        "kubeconfig": str(cluster.kubeconfig),
        "region": REGION,
    }
    return Program(EC2, (json.dumps(setup), str(port)), ready, _MODULE)


def environment(endpoint: str) -> Mapping[str, str]:
    """What makes an unmodified boto3 call it."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "emulated",
        "AWS_SECRET_ACCESS_KEY": "emulated",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def flags(cluster: DevCluster) -> Mapping[str, str]:
    """Of the provisioner."""
    return {
        "--provider": "aws",
        "--cluster-name": CLUSTER_NAME,
        "--cluster-endpoint": cluster.host,
        "--interruption-queue": CLUSTER_NAME,
    }
