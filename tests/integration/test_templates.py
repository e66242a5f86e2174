"""What `provisioner.apis.templates` makes of a template is the pod that a real API server makes of it: one class, field by field."""

import uuid

import msgspec
import pytest

from provisioner.apis.pods import decode_pod
from provisioner.apis.shapes import PodShape
from provisioner.apis.templates import admitted
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError
from tests.support.admissions import ROWS, Row
from tests.support.definitions import send
from tests.support.eventually import eventually

pytestmark = pytest.mark.plane


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_template_becomes_the_pod_that_the_api_server_makes(client: Client, row: Row) -> None:
    own = uuid.uuid4().hex[:8]
    namespace = f"admitted-{own}"
    names = {"runtime": f"runtime-{own}", "priority": f"priority-{own}"}
    send(client, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, dry=False)
    made = row.objects(names, namespace)
    expected = admitted(row.template(names), namespace, row.admission(names, namespace)).shape(namespace)
    seen: list[PodShape | ApiError] = []

    def is_made() -> bool:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "web-", "labels": {"app": "web"}},
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
