"""Windows: PowerShell that runs the user's text and then the image's own start script. Pure.

Source: AWS spec 2.7. Differs: the service CIDR is given when it is known, without which pods have no way to Services of
    clusters whose range is not that of EKS.
"""

from collections.abc import Iterator
from typing import Final

from provisioner.cloudprovider.aws.launch.userdata.flags import kubelet_flags
from provisioner.cloudprovider.aws.launch.userdata.inputs import NodeInput

SCRIPT: Final = '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"'


def render(node: NodeInput) -> str:
    """The whole user data."""
    lines = ["<powershell>"]
    if node.user_data:
        lines.append(node.user_data)
    return "\n".join([*lines, SCRIPT, " ".join(_call(node)), "</powershell>"])


def _call(node: NodeInput) -> Iterator[str]:
    cluster = node.cluster
    yield "& $EKSBootstrapScriptFile"
    yield f"-EKSClusterName {_quoted(cluster.name)}"
    yield f"-APIServerEndpoint {_quoted(cluster.endpoint)}"
    yield f"-Base64ClusterCA {_quoted(cluster.ca_bundle)}"
    yield f"-KubeletExtraArgs {_quoted(kubelet_flags(node))}"
    if node.cluster_dns:
        yield f"-DNSClusterIP {_quoted(node.cluster_dns[0])}"
    if cluster.cidr:
        yield f"-ServiceCIDR {_quoted(cluster.cidr)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
