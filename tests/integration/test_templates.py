"""What `provisioner.apis.templates` makes of a template is the pod that a real API server and our webhook make of it: one class, field by field."""

import uuid
from collections.abc import Iterator

import msgspec
import pytest

from provisioner.apis.pods import decode_pod
from provisioner.apis.shapes import PodShape
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from provisioner.lab.devcluster.cluster import DevCluster
from tests.support.admissions import ROWS, Row
from tests.support.definitions import send, with_definitions
from tests.support.eventually import eventually
from tests.support.hook import Hook

pytestmark = pytest.mark.plane


@pytest.fixture(scope="module")
def hook(plane: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hook]:
    """The webhook, gone afterwards with everything it made."""
    hook = Hook(plane, tmp_path_factory.mktemp("certs"), "--on-demand-shares")
    with_definitions(plane)
    hook.start()
    try:
        yield hook
    finally:
        hook.close()


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.usefixtures("hook")
def test_a_template_becomes_the_pod_that_the_api_server_makes(client: Client, row: Row) -> None:
    own = uuid.uuid4().hex[:8]
    namespace = f"admitted-{own}"
    names = {"runtime": f"runtime-{own}", "priority": f"priority-{own}", "pool": f"pool-{own}"}
    labels = row.marks(row.settings, names)
    send(client, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}}, dry=False)
    made = row.objects(names, namespace)
    expected = row.made(names, namespace).shape(namespace)
    metadata = msgspec.to_builtins(row.template(names).metadata)
    seen: list[PodShape | ApiError] = []

    def is_made() -> bool:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "web-", **metadata},
            "spec": row.body(names),
        }
        try:
            answer = send(client, "POST", f"/api/v1/namespaces/{namespace}/pods", pod)
            seen.append(decode_pod(msgspec.json.encode(answer)).shape)
        except ApiError as error:  # admission has not heard of the class yet
            seen.append(error)
        return seen[-1] == expected

    try:
        for path, body in made:
            send(client, "POST", path, body, dry=False)
        # admission plugins read from caches of their own, which may be a moment behind
        eventually(is_made, lambda: f"{_fields(seen[-1])} instead of {_fields(expected)}")
    finally:
        for path, body in made:
            client.raw("DELETE", f"{path}/{body['metadata']['name']}")
        client.raw("DELETE", f"/api/v1/namespaces/{namespace}")


def _fields(shape: PodShape | ApiError) -> object:
    return shape if isinstance(shape, ApiError) else {name: getattr(shape, name) for name in PodShape.__struct_fields__}
