"""Windows: PowerShell that runs the user's text and then the image's own start script. Pure.

Source: AWS spec 2.7; tags as EC2Launch reads them, https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html.
Differs: the service CIDR is given when it is known, without which pods have no way to Services of clusters whose range is not that of EKS;
    tags in the user's text are taken apart and put together with ours, within which EC2Launch would not find them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from provisioner.ec2.launch.userdata.flags import kubelet_flags
from provisioner.ec2.launch.userdata.inputs import NodeInput

SCRIPT: Final = '[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"'
_POWERSHELL: Final = "powershell"
_OPENING: Final = re.compile(
    r"^[ \t]*<(powershell|script|persist|powershellArguments|runAsLocalSystem|detach)>", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Elements:
    """What is in user data for Windows.

    Attributes:
        scripts: texts of <powershell>, in order; the whole text where no tag holds a script.
        others: the other elements, as they are written.
        names: of all elements, once each, as they are first written.
        outside: the text around elements that hold scripts, which EC2Launch does not read.
    """

    scripts: tuple[str, ...]
    others: tuple[str, ...]
    names: tuple[str, ...]
    outside: str


def elements_of(user_data: str) -> Elements:
    """The user's text, taken apart; an element begins a line, and one that does not end is text. Linear."""
    scripts, others, names, outside = list[str](), list[str](), list[str](), list[str]()
    at = 0
    endless = set[str]()
    for found in _OPENING.finditer(user_data):
        name = found[1].lower()
        if found.start() < at or name in endless:
            continue
        end = re.compile(f"</{name}>", re.IGNORECASE).search(user_data, found.end())
        if end is None:
            endless.add(name)
            continue
        outside.append(user_data[at : found.start()])
        at = end.end()
        names.append(found[1])
        if name == _POWERSHELL:
            scripts.append(user_data[found.end() : end.start()].strip("\r\n"))
        else:
            others.append(user_data[found.start() : at].strip())
    outside.append(user_data[at:])
    rest = user_data if not names else "\n".join(text for one in outside if (text := one.strip()))
    if {_POWERSHELL, "script"} & set(map(str.lower, names)):
        return Elements(tuple(scripts), tuple(others), tuple(dict.fromkeys(names)), rest)
    return Elements((rest,) if rest else (), tuple(others), tuple(dict.fromkeys(names)), "")


def render(node: NodeInput) -> str:
    """The whole user data."""
    own = elements_of(node.user_data)
    lines = ["<powershell>", *own.scripts, SCRIPT, " ".join(_call(node)), "</powershell>", *own.others]
    return "\n".join(lines)


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
