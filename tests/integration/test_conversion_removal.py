"""The component for old API versions is removed as its README says, command by command; what was applied at v1beta1 lives on at v1.

The other orders are why there is one: without its Service the webhook cannot be asked while a version that needs it is served.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from provisioner.apis.conversion.definitions import BETA, documents
from provisioner.kube.errors import ApiError
from provisioner.kube.resources import CRDS, EC2NODECLASSES, NODEPOOLS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.devcluster.errors import StateError
from tests.support.definitions import definition, stored_versions
from tests.support.eventually import PATIENCE, eventually
from tests.support.hook import HOME, Hook
from tests.support.provisioner import prepare

pytestmark = pytest.mark.plane

ROOT = Path(__file__).parents[2]
COMPONENT = ROOT / "manifests" / "components" / "conversion"
APPLIED = ROOT / "tests" / "data" / "seed-manifests" / "v1beta1-nodepool-and-ec2nodeclass.yaml"
DEFINITIONS = tuple(f"{one.plural}.{one.group}" for one in BETA.values())


@pytest.fixture
def hook(fresh_plane: DevCluster, tmp_path: Path) -> Iterator[Hook]:
    """A control plane with the component and its webhook, and objects that were applied at v1beta1."""
    found = Hook(fresh_plane, tmp_path, "--conversion")
    prepare(found.client)
    made = documents({"url": f"https://{found.address}/convert"}).values()
    forced = ("apply", "--server-side", "--force-conflicts", "-f")
    fresh_plane.kubectl(*forced, "-", stdin="---\n".join(map(yaml.safe_dump, made)))
    for name in ("rbac", "since"):
        fresh_plane.kubectl("apply", "-f", str(COMPONENT / f"{name}.yaml"))
    found.start()
    eventually(lambda: apply(found.plane), "the API server can ask the webhook", seconds=60)
    yield found
    found.plane.stop("webhook")


def apply(plane: DevCluster) -> bool:
    try:
        plane.kubectl("apply", "-f", str(APPLIED))
    except StateError:
        return False
    return True


def shell(plane: DevCluster, script: str) -> None:
    """As a user types it."""
    command = ["sh", "-euc", script]
    done = subprocess.run(
        command, env={**plane.env, **plane.environment()}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def commands() -> list[str]:
    """The blocks of commands under "Remove it", in order."""
    _, _, text = (COMPONENT / "README.md").read_text(encoding="utf-8").partition("## Remove it")
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def read_at_beta(plane: DevCluster) -> str:
    return plane.kubectl("get", "nodepools.v1beta1.karpenter.sh", "default", "-o", "name")


def lives(hook: Hook) -> None:
    """Both objects can be listed, watched, changed and described at v1."""
    (pool,) = hook.client.list(NODEPOOLS)
    (node_class,) = hook.client.list(EC2NODECLASSES)
    assert (pool.name, node_class.name) == ("default", "default")
    count = str(int(pool.metadata.annotations.get("changes", "0")) + 1)
    changed = hook.client.patch(NODEPOOLS, "default", {"metadata": {"annotations": {"changes": count}}})
    assert changed.metadata.annotations["changes"] == count
    assert hook.client.patch(NODEPOOLS, "default", {"status": {"nodes": 3}}, subresource="status").status.nodes == 3
    watch = ("nodepools.v1.karpenter.sh", "--watch", f"--request-timeout={2 * PATIENCE}s", "-o", "name")
    assert hook.plane.kubectl("get", *watch, check=False).split() == ["nodepool.karpenter.sh/default"]
    assert (
        json.loads(hook.plane.kubectl("get", "nodepools", "-o", "json"))["items"][0]["apiVersion"] == "karpenter.sh/v1"
    )


def test_v1_objects_live_through_the_removal_in_its_documented_order(hook: Hook) -> None:
    unserve, delete = commands()
    plane, spec = hook.plane, hook.client.list(NODEPOOLS)[0].spec
    assert "default" in read_at_beta(plane)

    shell(plane, unserve)
    with pytest.raises(StateError, match=r"the server could not find|doesn't have a resource type"):
        eventually(lambda: not read_at_beta(plane), "v1beta1 is no longer served")
    lives(hook)
    plane.stop("webhook")  # its pods are gone, and so is who answered for the Service
    lives(hook)

    shell(plane, unserve)  # each step can be repeated
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "manifests" / "crds"))
    for name in DEFINITIONS:
        told = definition(hook.client, name)["spec"]
        assert [version["name"] for version in told["versions"]] == ["v1"]
        assert told["conversion"]["strategy"] == "None"
        assert stored_versions(hook.client, name) == ["v1"]
    lives(hook)

    shell(plane, delete)
    lives(hook)
    assert hook.client.list(NODEPOOLS)[0].spec == spec
    left = plane.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    left += plane.kubectl("-n", HOME, "get", "roles,rolebindings,configmaps", "-o", "name")
    assert not [name for name in left.split() if "conversion" in name]
    with pytest.raises(ApiError):
        hook.client.get(CRDS, "provisioners.karpenter.sh")


def test_without_the_first_step_v1beta1_is_listed_and_cannot_be_read(hook: Hook) -> None:
    hook.plane.stop("webhook")
    with pytest.raises(StateError, match="conversion webhook"):
        read_at_beta(hook.plane)
    lives(hook)
