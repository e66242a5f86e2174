"""Managed node groups of the EKS cluster: created, described and resized; no instance stands behind them.

Source: https://docs.aws.amazon.com/eks/latest/APIReference/API_UpdateNodegroupConfig.html, API_DescribeNodegroup.html, API_CreateNodegroup.html and
API_ListNodegroups.html beside it.
"""

from collections.abc import Mapping
from typing import Any

from tests.support.ec2.protocol import AwsError


class NodeGroups:
    """The groups of one cluster."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._groups: dict[str, dict[str, Any]] = {}

    def create(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        """CreateNodegroup, of which everything is kept as it is sent."""
        self._check(request)
        name = request["nodegroupName"]
        if name in self._groups:
            raise AwsError("ResourceInUseException", f"NodeGroup already exists with name {name}", 409)
        group = {key: value for key, value in request.items() if key not in ("name", "clientRequestToken")}
        groups = [{"name": f"eks-{name}-0c1"}]
        self._groups[name] = {
            **group,
            "clusterName": self._cluster,
            "status": "ACTIVE",
            "resources": {"autoScalingGroups": groups},
        }
        return {"nodegroup": self._groups[name]}

    def list(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        """ListNodegroups, on one page."""
        self._check(request)
        return {"nodegroups": sorted(self._groups)}

    def describe(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        """DescribeNodegroup."""
        return {"nodegroup": self._find(request)}

    def update(self, request: Mapping[str, Any], _: float) -> dict[str, Any]:
        """UpdateNodegroupConfig: sizes, which must stay in order."""
        group = self._find(request)
        scaling = {**group.get("scalingConfig", {}), **request.get("scalingConfig", {})}
        if not scaling.get("minSize", 0) <= scaling.get("desiredSize", 0) <= scaling.get("maxSize", 0):
            said = f"Minimum capacity {scaling.get('minSize')} can't be greater than desired size {scaling.get('desiredSize')}"
            raise AwsError("InvalidParameterException", said)
        group["scalingConfig"] = scaling
        return {"update": {"id": "1", "status": "InProgress", "type": "ConfigUpdate"}}

    def _check(self, request: Mapping[str, Any]) -> None:
        if request["name"] != self._cluster:
            raise AwsError("ResourceNotFoundException", f"No cluster found for name: {request['name']}.", 404)

    def _find(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._check(request)
        found = self._groups.get(request["nodegroupName"])
        if found is None:
            raise AwsError(
                "ResourceNotFoundException", f"No node group found for name: {request['nodegroupName']}.", 404
            )
        return found
