"""A workload with a share on demand, and what became of its pods."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.support.eventually import eventually
from tests.support.hook import Hook

DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{}/deployments"
_SHARE: Final = "dovetail.dev/on-demand-share"


class Web:
    """A Deployment with 30 % of its pods on demand; they wait for nodes that never come."""

    def __init__(self, hook: Hook, replicas: int) -> None:
        self._hook, self.namespace = hook, hook.namespace()
        self._path = DEPLOYMENTS.format(self.namespace)
        template = {
            "metadata": {"labels": {"app": "web"}, "annotations": {"dovetail.dev/on-demand": "30%"}},
            "spec": {"serviceAccountName": "mine", "containers": [{"name": "c", "image": "x"}]},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        hook.client.raw("POST", self._path, {"metadata": {"name": "web"}, "spec": spec})

    def scale(self, replicas: int) -> None:
        change = {"spec": {"replicas": replicas}}
        path = f"{self._path}/web/scale"
        self._hook.client.raw("PATCH", path, change, content_type="application/merge-patch+json")

    def pods(self) -> list[dict[str, Any]]:
        found = json.loads(self._hook.client.raw("GET", f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def delete_on_demand(self) -> None:
        """Delete the pods that run on demand, all at once: the worst that the next admissions can find."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        names = [one["metadata"]["name"] for one in on_demand(self.pods())]
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda name: self._hook.client.raw("DELETE", f"{path}/{name}"), names))

    def settled(self, replicas: int) -> list[dict[str, Any]]:
        """The pods, once there are so many and no others."""

        def there() -> list[dict[str, Any]]:
            pods = self.pods()
            return pods if len(pods) == replicas else []

        return eventually(there, f"{replicas} pods", seconds=90)


def is_seated(pod: dict[str, Any]) -> bool:
    """Whether the webhook decided what the pod is for."""
    return _SHARE in pod["metadata"]["labels"]


def on_demand(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the pods that must run on demand."""
    return [one for one in pods if one["metadata"]["labels"].get(_SHARE) == "on-demand"]
