"""Ten minutes without the converter: what was applied at v1beta1 lives on at v1, longer than caches, resyncs and garbage collection put off a question."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.apis.conversion.definitions import BETA
from provisioner.kube.config import connect
from provisioner.kube.resources import EC2NODECLASSES, NODECLAIMS, NODEPOOLS, Resource
from provisioner.kube.watch import Reflector
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.errors import StateError
from provisioner.lab.progress import progress_for
from provisioner.support.clock import SystemClock
from tests.integration.test_old_versions import TOKYO, VERSION, OldCluster
from tests.support.awscluster import AwsCluster, aws_cluster
from tests.support.converted import FILES
from tests.support.definitions import stored_versions

pytestmark = [pytest.mark.plane, pytest.mark.judge, pytest.mark.timeout(1500)]

DEAD_SECONDS = 600.0
ROUND_SECONDS = 60.0
CONTROLLERS = "kube-controller-manager"
KINDS: tuple[Resource[Any], ...] = (NODEPOOLS, EC2NODECLASSES, NODECLAIMS)
ON_NODES_OF_IT = {"nodeSelector": {"karpenter.sh/nodepool": "default"}}
BETA_FILE = FILES / "v1beta1-nodepool-and-ec2nodeclass.yaml"


def at_v1(resource: Resource[Any]) -> str:
    """As kubectl names it; a kind alone may mean another version."""
    return f"{resource.plural}.{resource.version}.{resource.group}"


@dataclass
class Dead:
    """A cluster whose converter is dead."""

    stage: OldCluster
    aws: AwsCluster
    watches: dict[str, Reflector[Any]]

    def kubectl(self, *words: str, stdin: str = "") -> str:
        return self.stage.cluster.kubectl(*words, stdin=stdin)

    def names(self, resource: Resource[Any]) -> set[str]:
        return {one["metadata"]["name"] for one in self.stage.get(at_v1(resource))["items"]}

    def later(self, look: Callable[[], object], what: str) -> None:
        self.aws.eventually(look, what, 120.0)

    # ------------------------------------------------------------------ one round, in order

    def launch(self, number: int) -> str:
        """A node for a pod; the name of its NodeClaim."""
        before = self.names(NODECLAIMS)
        self.aws.deploy("late", 1, {"cpu": "3", "memory": "1Gi"}, **ON_NODES_OF_IT)
        self.later(lambda: self.aws.running() == 2, f"round {number}: a node is launched")
        (new,) = self.names(NODECLAIMS) - before
        return new

    def look(self) -> None:
        """List, and watches that were opened when the converter was dead already."""
        for resource in KINDS:
            watch = self.watches[resource.kind]
            self.later(partial(self._agree, watch, resource), f"the watch of {resource.kind} tells what a list does")

    def _agree(self, watch: Reflector[Any], resource: Resource[Any]) -> bool:
        return {one.metadata.name for one in watch.store.list()} == self.names(resource)

    def write(self, number: int, claim: str) -> None:
        """Metadata and status of an object of each kind."""
        for resource, name in ((NODEPOOLS, "default"), (EC2NODECLASSES, "default"), (NODECLAIMS, claim)):
            self.kubectl("annotate", at_v1(resource), name, f"tests.dovetail.dev/round={number}", "--overwrite")
            self.later(
                partial(self._status, resource, name, number), f"the status of {resource.kind} {name} is written"
            )

    def _status(self, resource: Resource[Any], name: str, number: int) -> bool:
        found = self.stage.get(at_v1(resource), name)
        kept = [one for one in found["status"]["conditions"] if one["type"] != "Checked"]
        mine = {"type": "Checked", "status": "True", "reason": "Round", "message": f"round {number}"}
        mine["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        body = {
            "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
            "status": {"conditions": [*kept, mine]},
        }
        words = ("patch", at_v1(resource), name, "--subresource=status", "--type=merge", "-o", "json")
        try:
            written = json.loads(self.kubectl(*words, "-p", json.dumps(body)))
        except StateError as error:
            if "Conflict" in str(error) or "has been modified" in str(error):
                return False
            raise
        return mine in written["status"]["conditions"]

    def delete(self, number: int, claim: str) -> None:
        """A NodeClaim with its node, a node class, and a namespace, which asks for every kind that the API server has."""
        self.aws.deploy("late", 0)
        self.kubectl("delete", at_v1(NODECLAIMS), claim)
        spare, namespace = f"spare-{number}", f"round-{number}"
        document = self.stage.get(at_v1(EC2NODECLASSES), "default")
        made = {key: document[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": spare}}
        self.kubectl("create", "-f", "-", stdin=json.dumps(made))
        self.kubectl("delete", at_v1(EC2NODECLASSES), spare)
        self.kubectl("create", "namespace", namespace)
        self.kubectl("create", "configmap", "something", "-n", namespace)
        self.kubectl("delete", "namespace", namespace)
        assert claim not in self.names(NODECLAIMS)
        assert spare not in self.names(EC2NODECLASSES)
        assert not self.kubectl("get", "namespace", namespace, "--ignore-not-found", "-o", "name").strip()


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[Dead]:
    """Objects of both kinds applied at v1beta1, with a node; then the webhook is stopped, and three watches are opened."""
    cluster = DevCluster(temporary=True, extender=False, progress=progress_for(sys.__stderr__))
    cluster.up()
    watches: dict[str, Reflector[Any]] = {}
    try:
        stage = OldCluster(cluster, tmp_path)
        with aws_cluster(cluster, region=TOKYO, version=VERSION, clock_factor=8.0) as aws:
            stage.component()
            stage.start(aws, TOKYO)
            aws.eventually(stage.trusted, "the definitions have the CA bundle")
            stage.apply("v1beta1-nodepool-and-ec2nodeclass")
            (_, spare) = yaml.safe_load_all(BETA_FILE.read_text(encoding="utf-8"))
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**spare, "metadata": {"name": "unused"}}))
            aws.deploy("early", 1, **ON_NODES_OF_IT)
            aws.await_running(1)
            cluster.stop("webhook")
            connection = connect(str(cluster.kubeconfig), user_agent="dovetail-test")
            for resource in KINDS:
                watches[resource.kind] = Reflector(connection, resource, clock=SystemClock())
                watches[resource.kind].start()
            yield Dead(stage, aws, watches)
    finally:
        for one in watches.values():
            one.stop()
        cluster.down()


def test_ten_minutes_without_the_converter(dead: Dead) -> None:
    began = time.monotonic()
    number = 0
    while time.monotonic() < began + DEAD_SECONDS:
        number += 1
        dead.look()
        claim = dead.launch(number)
        dead.write(number, claim)
        dead.look()
        dead.delete(number, claim)
        with pytest.raises(StateError, match="conversion webhook"):  # it is dead indeed
            dead.stage.get("nodepools.v1beta1.karpenter.sh")
        if number == 2:  # the programs that list everything anew
            dead.aws.stop_provisioner()
            dead.stage.start_provisioner(dead.aws, TOKYO)
            dead.stage.cluster.stop(CONTROLLERS)
            dead.stage.cluster.start(CONTROLLERS)
        time.sleep(max(0.0, began + number * ROUND_SECONDS - time.monotonic()))
    assert number >= 3
    dead.aws.deploy("early", 0)
    for resource in (NODEPOOLS, EC2NODECLASSES):
        dead.kubectl("delete", at_v1(resource), "--all", "--wait=false")
    dead.later(lambda: not any(dead.names(resource) for resource in KINDS), "all objects have gone")
    stored = [stored_versions(dead.aws.client, f"{one.plural}.{one.group}") for one in BETA.values()]
    assert stored == [["v1"]] * len(BETA)
