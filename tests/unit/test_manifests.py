"""The manifests say what the programs say: flags, ports, registration, scheduler configuration, and roles that are just enough."""

import ast
import functools
import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from extender import server as extender_server
from provisioner.apis import ec2, names
from provisioner.apis.conversion.ownership import CLUSTER_AUTOSCALER_LEASE, KARPENTER_LEASE
from provisioner.apis.crds import documents as definitions
from provisioner.apis.reports import LEASE_NAME
from provisioner.ec2.cloud import tables_of
from provisioner.ec2.launch.templates import TemplateUses
from provisioner.ec2.market.discovered_capacity import MemoryTable
from provisioner.ec2.market.persistence import MAX_PARTS
from provisioner.ec2.market.unavailable_offerings import Shortages
from provisioner.ec2.settings import CONFIG_MAP, AwsSettings
from provisioner.kube import resources
from provisioner.lab.devcluster.kubescheduler import (
    DEFAULT_PROFILE,
    FEATURE_GATES,
    PROFILE,
    scheduler_configuration,
)
from provisioner.lab.harness.programs import AS_DEPLOYED
from provisioner.lab.image.configuration import ENVIRONMENT
from provisioner.operator.certificates import (
    EXTENDER_CLIENT_SECRET,
    EXTENDER_SERVER_SECRET,
    REPORT_CLIENT_SECRET,
    REPORT_SERVER_SECRET,
)
from provisioner.options import Options
from tests.support.rooms import aws, controllers
from webhook import server as webhook_server
from webhook.images.references import Host
from webhook.images.trust import ListedImage, Pattern, parse_registries
from webhook.registration import MUTATE_PATH, VALIDATE_PATH, validating_configuration, webhook_configuration

REPOSITORY = Path(__file__).parents[2]
MANIFESTS = REPOSITORY / "manifests"
NAMESPACE = "dovetail-system"

Document = dict[str, Any]


PARTS = (
    "base",
    "components/kwok",
    "components/aws",
    "components/surge",
    "components/vpa-predictions",
    "components/conversion",
    "scheduler",
)
"""Kustomizations with resources of their own."""


def load(*names: str) -> list[Document]:
    """All documents of the kustomizations `names`, in order."""
    return [document for name in names for document in documents_of(name)]


@functools.cache
def documents_of(name: str) -> tuple[Document, ...]:
    directory = MANIFESTS / name
    entries = yaml.safe_load((directory / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    texts = [(directory / entry).read_text(encoding="utf-8") for entry in entries if entry.endswith(".yaml")]
    return tuple(one for text in texts for one in yaml.safe_load_all(text) if one)


ALL = load(*PARTS)


def of_kind(kind: str) -> list[Document]:
    return [document for document in ALL if document["kind"] == kind]


def named(kind: str, name: str) -> Document:
    (found,) = (document for document in of_kind(kind) if document["metadata"]["name"] == name)
    return found


DEPLOYMENTS = of_kind("Deployment")
PODS = [pytest.param(one["spec"]["template"]["spec"], id=one["metadata"]["name"]) for one in DEPLOYMENTS]
CONTAINERS = [
    pytest.param(container, id=container["name"])
    for one in DEPLOYMENTS
    for container in one["spec"]["template"]["spec"]["containers"]
]


def container_of(name: str) -> Document:
    (found,) = (one.values[0] for one in CONTAINERS if one.id == name)
    assert isinstance(found, dict)
    return started(found)


def started(container: Document) -> Document:
    """As a kubelet starts it: with the namespace of its Pod in its arguments."""
    own = {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    known = own in container["env"]
    words = {key: container[key] for key in ("args", "command") if key in container}
    assert known or "$(POD_NAMESPACE)" not in str(words)
    return container | {
        key: [word.replace("$(POD_NAMESPACE)", NAMESPACE) for word in found] for key, found in words.items()
    }


# --- completeness ---------------------------------------------------------------------------------------------------


KUSTOMIZATIONS = sorted(str(path.parent.relative_to(MANIFESTS)) for path in MANIFESTS.rglob("kustomization.yaml"))


@pytest.mark.parametrize("directory", KUSTOMIZATIONS)
def test_every_file_is_in_its_kustomization(directory: str) -> None:
    kustomization = yaml.safe_load((MANIFESTS / directory / "kustomization.yaml").read_text(encoding="utf-8"))
    listed = set(kustomization.get("resources", ()))
    listed.update(patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch)
    for generator in kustomization.get("configMapGenerator", ()):
        listed.update(generator["files"])
    there = {path.name for path in (MANIFESTS / directory).glob("*.yaml")} - {"kustomization.yaml"}
    assert {name for name in listed if name.endswith(".yaml")} == there
    documents = {name for name in listed if name.endswith(".json")}
    found = (path.relative_to(MANIFESTS / directory) for path in (MANIFESTS / directory).rglob("*.json"))
    assert documents == set(map(str, found))
    below = {name for name in (*listed - documents, *kustomization.get("components", ())) if not name.endswith(".yaml")}
    assert all((MANIFESTS / directory / name).is_dir() for name in below)
    assert kustomization["kind"] == ("Component" if directory.startswith("components/") else "Kustomization")


def test_every_definition_is_in_the_kustomization_of_the_definitions() -> None:
    kustomization = yaml.safe_load((MANIFESTS / "crds" / "Kustomization").read_text(encoding="utf-8"))
    assert kustomization["resources"] == sorted(definitions())


# --- what the programs say themselves -------------------------------------------------------------------------------


def behind_the_service(path: str) -> Document:
    return {"service": {"name": "dovetail-webhook", "namespace": NAMESPACE, "path": path, "port": 443}}


def test_the_registration_is_the_one_that_the_webhook_builds() -> None:
    (written,) = of_kind("MutatingWebhookConfiguration")
    assert written == webhook_configuration(behind_the_service(MUTATE_PATH), NAMESPACE)
    (validating,) = of_kind("ValidatingWebhookConfiguration")
    assert validating == validating_configuration(behind_the_service(VALIDATE_PATH))


def scheduler_file() -> Document:
    """What kube-scheduler is configured with: the file, and the flag that it puts above the file."""
    text = (MANIFESTS / "scheduler" / "configuration.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    assert isinstance(found, dict)
    flag = "--leader-elect-resource-namespace="
    (namespace,) = (word for word in container_of("kube-scheduler")["command"] if word.startswith(flag))
    found["leaderElection"]["resourceNamespace"] = namespace.removeprefix(flag)
    return found


def test_the_main_scheduler_of_ones_own_control_plane_has_the_canonical_configuration_too() -> None:
    """The one that the dev cluster runs (`default-scheduler` and ours behind one extender), and so every test of placement."""
    page = (MANIFESTS / "scheduler" / "README.md").read_text(encoding="utf-8")
    (block,) = (text for text in page.split("```")[1::2] if "KubeSchedulerConfiguration" in text)
    canonical = scheduler_configuration(extender="http://127.0.0.1:8090", kubeconfig="/etc/kubernetes/scheduler.conf")
    assert yaml.safe_load(block.removeprefix("yaml")) == canonical | {"profiles": [{"schedulerName": DEFAULT_PROFILE}]}
    assert f"--feature-gates={FEATURE_GATES}" in page


def test_the_extender_on_a_control_plane_host_is_the_one_beside_our_scheduler() -> None:
    """The same rights, and the same container; it listens on the host's loopback only."""
    text = (MANIFESTS / "examples" / "control-plane-extender.yaml").read_text(encoding="utf-8")
    found = {one["kind"]: one for one in yaml.safe_load_all(text)}
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    own, other = started(pod["containers"][0]), container_of("extender")
    assert len(pod["containers"]) == 1
    for field in ("image", "env", "securityContext", "resources", "volumeMounts"):
        assert own[field] == other[field], field
    binds = [flag for flag in own["args"] if "-bind=" in flag]
    assert binds == ["--bind=127.0.0.1:8090", "--metrics-bind=127.0.0.1:8091"]
    assert set(own["args"]) - set(binds) == {flag for flag in other["args"] if "-bind=" not in flag}
    assert {mount["name"] for mount in own["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    roles = {one["metadata"]["name"]: one for one in of_kind("ClusterRole")}
    assert found["ClusterRole"]["rules"] == roles["dovetail-extender"]["rules"]
    (role,) = (one for one in of_kind("Role") if one["metadata"]["name"] == "dovetail-extender")
    assert found["Role"]["rules"] == role["rules"]
    for binding in ("ClusterRoleBinding", "RoleBinding"):
        assert found[binding]["roleRef"]["name"] == found[binding.removesuffix("Binding")]["metadata"]["name"]
        (subject,) = found[binding]["subjects"]
        assert subject["name"] == pod["serviceAccountName"] == found["ServiceAccount"]["metadata"]["name"]


def test_the_extender_on_a_control_plane_host_gets_a_pod_and_reaches_the_provisioner() -> None:
    """A Pod in the host's network needs a privileged namespace, and comes from an address that no podSelector matches."""
    text = (MANIFESTS / "examples" / "control-plane-extender.yaml").read_text(encoding="utf-8")
    found = {one["kind"]: one for one in yaml.safe_load_all(text)}
    page = (MANIFESTS / "scheduler" / "README.md").read_text(encoding="utf-8")
    (block,) = (text for text in page.split("```")[1::2] if "../../namespace" in text)
    kustomization = yaml.safe_load(block.removeprefix("yaml"))
    assert kustomization["resources"] == ["../../namespace"]
    (patch,) = kustomization["patches"]
    (change,) = yaml.safe_load(patch["patch"])
    label = change["path"].removeprefix("/metadata/labels/").replace("~1", "/")
    (namespace,) = load("namespace")
    assert namespace["metadata"]["name"] == patch["target"]["name"]
    assert (change["op"], change["value"]) == ("replace", "privileged")
    assert label in namespace["metadata"]["labels"]
    policy = found["NetworkPolicy"]["spec"]
    (by_pod,) = (
        one for one in named("NetworkPolicy", "provisioner")["spec"]["ingress"] if "podSelector" in one["from"][0]
    )
    assert policy["podSelector"] == named("NetworkPolicy", "provisioner")["spec"]["podSelector"]
    assert [one["ports"] for one in policy["ingress"]] == [by_pod["ports"]]
    (source,) = policy["ingress"][0]["from"]
    assert source["ipBlock"]["cidr"] in page


def test_the_scheduler_has_the_canonical_configuration_with_a_lease_of_its_own() -> None:
    assert scheduler_file() == scheduler_configuration(extender="http://127.0.0.1:8090") | {
        "leaderElection": {
            "leaderElect": True,
            "resourceName": "dovetail-scheduler",
            "resourceNamespace": NAMESPACE,
        },
        "profiles": [{"schedulerName": PROFILE}],
    }


def test_the_scheduler_runs_with_the_canonical_feature_gates() -> None:
    assert f"--feature-gates={FEATURE_GATES}" in container_of("kube-scheduler")["command"]


def test_the_extender_listens_where_the_scheduler_asks() -> None:
    (extender,) = scheduler_file()["extenders"]
    assert f"--bind={extender['urlPrefix'].removeprefix('http://')}" in container_of("extender")["args"]


def test_the_webhook_looks_at_the_lease_that_the_scheduler_holds() -> None:
    election = scheduler_file()["leaderElection"]
    lease = f"{election['resourceNamespace']}/{election['resourceName']}"
    assert f"--scheduler-lease={lease}" in container_of("webhook")["args"]


def test_the_provisioner_takes_its_flags_and_variables() -> None:
    container = container_of("provisioner")
    variables = {one["name"]: one.get("value", "") for one in container["env"]}
    given = {
        "SYSTEM_NAMESPACE": NAMESPACE,
        "CPU_REQUESTS": "1000",
        "MEMORY_LIMIT": "1073741824",
        "DOVETAIL_REPORT_ADDRESS": variables["DOVETAIL_REPORT_ADDRESS"].replace("$(POD_IP)", "10.0.0.7"),
    }
    assert given.keys() == variables.keys() - {"POD_IP", *AS_DEPLOYED}
    options = Options.parse(container["args"][1:], given)
    assert (options.report_address, options.lease_namespace) == ("10.0.0.7:8444", NAMESPACE)
    assert options.report_cert_dir in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert options.why_port not in (0, options.metrics_port, options.health_probe_port, options.report_port)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "metrics": options.metrics_port,
        "health": options.health_probe_port,
        "reports": options.report_port,
    }


def test_the_webhook_takes_its_flags() -> None:
    container = container_of("webhook")
    values = webhook_server.command.make_context("webhook", list(container["args"][1:])).params
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {
        "https": values["bind"][1],
        "metrics": values["metrics_bind"][1],
        "health": values["health_bind"][1],
    }
    assert {values[name][0] for name in ("bind", "metrics_bind", "health_bind")} == {""}, "IPv6 too"
    assert str(values["cert_dir"]) in {mount["mountPath"] for mount in container["volumeMounts"]}
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        (hook,) = of_kind(kind)
        assert values["configuration"] == hook["metadata"]["name"]
        assert values["service"] == hook["webhooks"][0]["clientConfig"]["service"]["name"]
    assert {one["name"] for one in container["env"]} == {"POD_NAMESPACE", "POD_NAME", *AS_DEPLOYED}


def test_the_extender_takes_its_flags() -> None:
    container = container_of("extender")
    values = extender_server.command.make_context("extender", list(container["args"][1:])).params
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    for name in ("reports_ca", "reports_cert", "reports_key"):
        assert str(Path(values[name]).parent) in mounts
    assert values["reports_server_name"] == f"dovetail-provisioner.{NAMESPACE}.svc"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"metrics": values["metrics_bind"][1], "health": values["health_bind"][1]}


# --- how pods are run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pod", PODS)
def test_every_pod_is_unprivileged_important_and_off_our_own_nodes(pod: Document) -> None:
    security = pod["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["runAsUser"] > 0
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["priorityClassName"] == "system-cluster-critical"
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}]
    assert pod.get("schedulerName", "default-scheduler") == "default-scheduler", "nothing here may wait for itself"
    assert pod["topologySpreadConstraints"]
    for volume in pod["volumes"]:
        assert "secret" not in volume or volume["secret"]["optional"] is True


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_container_is_confined_probed_and_sized(container: Document) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]
    assert "livenessProbe" in container
    assert "startupProbe" in container
    ports = {port["name"] for port in container["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert probe not in container or container[probe]["httpGet"]["port"] in ports


@pytest.mark.parametrize("deployment", [pytest.param(one, id=one["metadata"]["name"]) for one in DEPLOYMENTS])
def test_every_deployment_survives_the_loss_of_a_pod(deployment: Document) -> None:
    spec = deployment["spec"]
    assert spec["replicas"] >= 2
    assert spec["template"]["metadata"]["labels"] == spec["selector"]["matchLabels"]
    (spread,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert spread["labelSelector"] == spec["selector"]
    budget = named("PodDisruptionBudget", deployment["metadata"]["name"])["spec"]
    assert budget["selector"] == spec["selector"]
    assert budget["maxUnavailable"] == 1
    mounts = {
        mount["name"] for container in spec["template"]["spec"]["containers"] for mount in container["volumeMounts"]
    }
    assert mounts == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}


def ports_of(selector: Document) -> set[str]:
    """Port names of the one Deployment with these labels."""
    (found,) = (one for one in DEPLOYMENTS if one["spec"]["selector"]["matchLabels"] == selector)
    return {port["name"] for each in found["spec"]["template"]["spec"]["containers"] for port in each["ports"]}


@pytest.mark.parametrize("service", [pytest.param(one, id=one["metadata"]["name"]) for one in of_kind("Service")])
def test_every_service_leads_to_ports_that_are_there(service: Document) -> None:
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports_of(service["spec"]["selector"])


MONITORING = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]


def test_every_port_is_open_to_those_who_need_it_and_to_no_other() -> None:
    """Probes are not listed: what comes from a pod's own node is always let through, and nobody else needs them."""
    denied = named("NetworkPolicy", "default-deny")["spec"]
    assert denied == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    scheduler = [{"podSelector": named("Deployment", "dovetail-scheduler")["spec"]["selector"]}]
    wanted: dict[str, dict[str, object]] = {
        "provisioner": {"metrics": MONITORING, "reports": scheduler},
        "webhook": {"https": None, "metrics": MONITORING},
        "scheduler": {"scheduler": MONITORING, "metrics": MONITORING},
    }
    for name, opened in wanted.items():
        spec = named("NetworkPolicy", name)["spec"]
        assert {port["port"]: rule.get("from") for rule in spec["ingress"] for port in rule["ports"]} == opened
        assert ports_of(spec["podSelector"]["matchLabels"]) - opened.keys() == {"health"}


def test_probes_come_to_a_port_of_their_own() -> None:
    for name in ("provisioner", "webhook", "extender"):
        container = container_of(name)
        probes = [container[kind] for kind in ("startupProbe", "livenessProbe", "readinessProbe") if kind in container]
        assert {probe["httpGet"]["port"] for probe in probes} == {"health"}
        assert all("scheme" not in probe["httpGet"] for probe in probes)


def test_reports_may_leave_the_scheduler() -> None:
    (sent,) = named("NetworkPolicy", "scheduler")["spec"]["egress"]
    provisioner = named("Deployment", "dovetail-provisioner")["spec"]["selector"]
    assert sent == {"to": [{"podSelector": provisioner}], "ports": [{"protocol": "TCP", "port": "reports"}]}


def test_the_image_has_the_programs_and_runs_as_the_user_of_the_pods() -> None:
    text = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8")
    for package in ("certs", "extender", "provisioner", "webhook"):
        assert f"COPY {package} {package}" in text
    (user,) = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    assert {pod.values[0]["securityContext"]["runAsUser"] for pod in PODS} == {int(user)}  # type: ignore[index]
    assert 'ENTRYPOINT ["dovetail"]' in text
    ours = [container_of(name) for name in ("provisioner", "webhook", "extender")]
    assert [one["args"][0] for one in ours] == ["provisioner", "webhook", "extender"]
    assert len({one["image"] for one in ours}) == 1
    # what the harness measures is what runs in a cluster; compiled, because nothing can be written there
    for one in ours:
        assert AS_DEPLOYED.items() <= {each["name"]: each.get("value") for each in one["env"]}.items()
    assert AS_DEPLOYED.items() <= ENVIRONMENT.items()


# --- roles: what is granted is what the code asks for ---------------------------------------------------------------


class Use(NamedTuple):
    """One thing that a program asks the API server for."""

    verb: str
    group: str
    resource: str  # with "/subresource"


LEASE_VERBS = ("get", "create", "patch")
"""What `provisioner.kube.lease` sends, by raw requests."""

CLIENT_VERBS = {
    "get": ("get",),
    "find": ("get",),
    "list": ("list",),
    "items": ("list",),
    "survey": ("list",),
    "create": ("create",),
    "replace": ("update",),
    "patch": ("patch",),
    "apply": ("patch", "create"),
    "delete": ("delete",),
}
WATCHERS = ("Reflector", "_reflect")


def calls(paths: list[str]) -> Iterator[ast.Call]:
    for path in paths:
        whole = REPOSITORY / path
        for file in sorted(whole.rglob("*.py")) if whole.is_dir() else [whole]:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield node


def called(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Subscript(value=ast.Name(id=name)):
            return name
        case _:
            return ""


def resource_of(call: ast.Call) -> resources.Resource[Any] | None:
    """The first argument that is one of the constants of `provisioner.kube.resources`, or is made of one."""
    for argument in call.args:
        if isinstance(argument, ast.Call) and called(argument) == "known":  # the kind, of which facts alone are kept
            return resource_of(argument)
        name = argument.attr if isinstance(argument, ast.Attribute) else getattr(argument, "id", "")
        found = extender_server.MEMBERS if name == "MEMBERS" else getattr(resources, name, None)
        if name.isupper() and isinstance(found, resources.Resource):
            return found
    return None


def asked_for(paths: list[str]) -> set[Use]:
    """Everything that the modules under `paths` ask the API server for, read from their source."""
    uses: set[Use] = set()
    for call in calls(paths):
        name, resource = called(call), resource_of(call)
        if name == "LeaderElector":
            uses |= {Use(verb, "coordination.k8s.io", "leases") for verb in LEASE_VERBS}
        elif name == "evict":
            uses.add(Use("create", "", "pods/eviction"))
        elif resource is not None:
            below = [
                keyword.value.value
                for keyword in call.keywords
                if keyword.arg == "subresource" and isinstance(keyword.value, ast.Constant)
            ]
            whole = "/".join([resource.plural, *map(str, below)])
            verbs = ("list", "watch") if name in WATCHERS else CLIENT_VERBS.get(name, ())
            if name == "apply" and below:
                verbs = ("patch",)  # a subresource is of an object that exists
            uses |= {Use(verb, resource.group, whole) for verb in verbs}
    return uses


def rules_of(account: str, *parts: str) -> Iterator[tuple[str, Document]]:
    """(namespace or "", rule) of every role in these parts that is bound to this ServiceAccount."""
    found = load(*(parts or PARTS))
    roles = {(one["kind"], one["metadata"]["name"]): one for one in found if one["kind"] in ("ClusterRole", "Role")}
    for binding in found:
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        reference = binding["roleRef"]
        subjects = [(one["kind"], one["name"], one["namespace"]) for one in binding["subjects"]]
        role = roles.get((reference["kind"], reference["name"]))
        if role is None or subjects != [("ServiceAccount", account, NAMESPACE)]:
            continue
        for rule in role["rules"]:
            yield binding["metadata"].get("namespace", ""), rule


def granted(account: str, *parts: str) -> set[Use]:
    return {
        Use(verb, group, resource)
        for _, rule in rules_of(account, *parts)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


READ = "list watch"
KARPENTER, CLASSES, STORAGE, LEASES = "karpenter.sh", "karpenter.k8s.aws", "storage.k8s.io", "coordination.k8s.io"

PURPOSES: dict[tuple[str, str], dict[tuple[str, str, str], str]] = {
    ("dovetail-provisioner", "base"): {
        (READ, KARPENTER, "nodepools nodeclaims"): "what nodes it may make, and those that it made",
        (READ, KARPENTER, "nodeoverlays"): "other prices and resources (--feature-gates=NodeOverlay=true)",
        ("patch", KARPENTER, "nodeoverlays/status"): "whether they are in force",
        (READ, "autoscaling.x-k8s.io", "capacitybuffers"): "room to keep (--feature-gates=CapacityBuffer=true)",
        ("patch", "autoscaling.x-k8s.io", "capacitybuffers/status"): "whether it is there",
        (
            f"{READ} delete",
            "autoscaling.x-k8s.io",
            "provisioningrequests",
        ): "room that is asked for (--provisioning-classes), until a week after its end",
        ("patch", "autoscaling.x-k8s.io", "provisioningrequests/status"): "whether it is there",
        ("get", "", "podtemplates"): "what a unit of a buffer, or a pod of a request, is shaped like",
        (
            "get",
            "apps",
            "deployments replicasets statefulsets",
        ): "the same, how many replicas there are, and what their template asks for",
        ("list", "apps", "deployments"): "whether others of a namespace are about to have more pods",
        (READ, "", "pods nodes"): "who waits, and what is there",
        (READ, "apps", "daemonsets"): "what every node will carry",
        (READ, "", "persistentvolumes persistentvolumeclaims"): "where a pod's volumes let it run",
        (
            READ,
            STORAGE,
            "storageclasses csidrivers csinodes",
        ): "where volumes may be made, and which and how many a node takes",
        (READ, "", "namespaces limitranges"): "selectors of affinity, and default requests",
        (READ, "node.k8s.io", "runtimeclasses"): "what admission adds to the pods of templates",
        (READ, "scheduling.k8s.io", "priorityclasses"): "the same",
        (
            READ,
            "scheduling.k8s.io",
            "podgroups",
        ): "which pods kube-scheduler takes together, so that none of them gets a node before the last is there",
        (READ, "scheduling.volcano.sh", "podgroups"): "the same of Volcano",
        (READ, "scheduling.x-k8s.io", "podgroups"): "the same of the coscheduling plugin",
        ("get", "batch", "jobs"): "how many pods of a gang a Job runs at once, where annotations do not say it",
        (READ, "policy", "poddisruptionbudgets"): "which pods cannot leave their node now",
        ("list", STORAGE, "volumeattachments"): "which volumes are still attached to a node that goes",
        (READ, "", "services replicationcontrollers"): "whose pods a default spread means (--scheduler-config)",
        (
            READ,
            "apps",
            "replicasets statefulsets",
        ): "the same; whether an owner is being updated whose share is repaired",
        ("patch", KARPENTER, "nodepools nodepools/status"): "hash and migration; counters and conditions",
        ("get create patch delete", KARPENTER, "nodeclaims"): "a claim's life, from plan to finalizer",
        ("patch", KARPENTER, "nodeclaims/status"): "its conditions",
        ("update", KARPENTER, "nodepools/finalizers nodeclaims/finalizers"): "owner references that block deletion",
        ("get patch delete", "", "nodes"): "registration, taints, finalizer, end",
        ("patch", "", "pods/status"): "nomination; labels and records of shares that are repaired",
        ("create", "", "pods/eviction"): "drains and repairs of shares within budgets",
        ("delete", "", "pods"): "pods whose instance ends before their grace period would",
        ("create patch", "", "events"): "telling",
        ("create", "authentication.k8s.io", "tokenreviews"): "who asks why (--why-port)",
        ("create", "authorization.k8s.io", "subjectaccessreviews"): "what they may see",
        ("get create patch", LEASES, "leases"): "election",
        (READ, "", "configmaps"): "whether disruption is paused",
        ("get list watch create patch", "", "configmaps"): "since when Dovetail is installed, and what is confirmed",
        ("get", "apiextensions.k8s.io", "customresourcedefinitions"): "whether NodeClaims go with their definition",
        (
            "get",
            "",
            "configmaps",
        ): "what the webhook stamps on pods that ask for nothing, for CapacityBuffers and ProvisioningRequests",
        ("get patch", "", "secrets"): "certificates for reports, and for an extender off loopback",
    },
    ("dovetail-provisioner", "components/kwok"): {
        (READ, "karpenter.kwok.sh", "kwoknodeclasses"): "its classes",
        ("create", "", "nodes"): "its instances, which are Nodes",
        ("patch", "", "nodes/status"): "the boot ID of those that are rebooted",
    },
    ("dovetail-provisioner", "components/aws"): {
        (f"{READ} patch", CLASSES, "ec2nodeclasses"): "its classes, their hash and finalizer",
        ("patch", CLASSES, "ec2nodeclasses/status"): "what was discovered for them",
        ("get", "networking.k8s.io", "servicecidrs"): "the addresses of Services, which AL2023 asks for",
        ("get create patch", "", "configmaps"): "what AWS taught it, over restarts; discounts",
        ("get", "", "services"): "the address of the cluster's DNS",
        ("get", "apps", "daemonsets"): "whether the VPC CNI hands out prefixes",
    },
    ("dovetail-provisioner", "components/surge"): {
        ("patch", "apps", "deployments"): "a restart before the only pod is evicted",
    },
    ("dovetail-provisioner", "components/vpa-predictions"): {
        (READ, "autoscaling.k8s.io", "verticalpodautoscalers"): "what pods that move will request",
    },
    ("dovetail-provisioner", "components/conversion"): {
        ("list", KARPENTER, "provisioners"): "old objects",
        ("list", CLASSES, "awsnodetemplates"): "the same",
        ("patch", KARPENTER, "provisioners/status"): "what became of them",
        ("patch", CLASSES, "awsnodetemplates/status"): "the same",
        ("get create patch", KARPENTER, "nodepools"): "what they become",
        ("get create patch", CLASSES, "ec2nodeclasses"): "the same",
        ("get", "", "configmaps"): "since when the component is there",
    },
    ("dovetail-webhook", "components/conversion"): {
        ("get patch", "apiextensions.k8s.io", "customresourcedefinitions"): "caBundle",
        ("get", LEASES, "leases"): "whether Karpenter runs",
    },
    ("dovetail-webhook", "base"): {
        (READ, "", "namespaces"): "what a namespace asks for",
        (
            READ,
            KARPENTER,
            "nodepools nodeoverlays",
        ): "the taints that pods for a NodePool tolerate; whether overlays conflict",
        (READ, CLASSES, "ec2nodeclasses"): "whether what a NodePool refers to exists",
        (READ, "karpenter.kwok.sh", "kwoknodeclasses"): "the same",
        (
            f"{READ} patch",
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations validatingwebhookconfigurations",
        ): "caBundle",
        (READ, "", "configmaps"): "the cluster's defaults",
        (f"get {READ} patch", "", "secrets"): "its certificate",
        (f"get create {READ} patch", LEASES, "leases"): "election, the record of replicas; whether our scheduler lives",
    },
    ("dovetail-scheduler", "scheduler"): {
        (READ, "", "nodes pods"): "room, and who takes it",
        (READ, KARPENTER, "nodeclaims"): "plans",
        ("patch", "", "nodes"): "one annotation, which makes kube-scheduler try refused pods again",
        ("get update", LEASES, "leases"): "kube-scheduler's election",
        (READ, LEASES, "leases"): "where the provisioner takes reports",
    },
}
"""What each verb of our roles is for; roles that every cluster has (system:kube-scheduler) are not ours."""


@pytest.mark.parametrize(("account", "part"), PURPOSES, ids=" in ".join)
def test_every_verb_is_there_for_a_purpose(account: str, part: str) -> None:
    listed = {
        Use(verb, group, resource)
        for verbs, group, named_resources in PURPOSES[account, part]
        for verb in verbs.split()
        for resource in named_resources.split()
    }
    assert granted(account, part) == listed


def test_no_account_has_roles_elsewhere() -> None:
    accounts = {account for account, _ in PURPOSES}
    assert accounts == {one["metadata"]["name"] for one in of_kind("ServiceAccount")}
    assert {(account, part) for account in accounts for part in PARTS if granted(account, part)} == PURPOSES.keys()


FINALIZERS = {
    Use("update", "karpenter.sh", "nodepools/finalizers"),
    Use("update", "karpenter.sh", "nodeclaims/finalizers"),
}
"""Asked for by the OwnerReferencesPermissionEnforcement admission plugin, not by a request."""

BY_PATH = {
    *(Use("get", "networking.k8s.io", "servicecidrs"), Use("get", "apps", "daemonsets")),
    *(Use("get", KARPENTER, "nodepools"), Use("get", CLASSES, "ec2nodeclasses")),
    *(
        Use("create", "authentication.k8s.io", "tokenreviews"),
        Use("create", "authorization.k8s.io", "subjectaccessreviews"),
    ),
}
"""Asked for by raw requests: for fields that no decoded object keeps, with deadlines of their own."""

OUTSIDE = {
    Use("create", "", "namespaces"),
    Use("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    Use("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    Use("create", "", "secrets"),
}
"""What the webhook makes outside of a cluster (`--register-url`); in a cluster the manifests made it."""

BY_TABLE = {
    *(
        Use(verb, group, kind)
        for verb in ("create", "patch")
        for group, kind in ((KARPENTER, "nodepools"), (CLASSES, "ec2nodeclasses"))
    ),
    *(Use("patch", KARPENTER, "provisioners/status"), Use("patch", CLASSES, "awsnodetemplates/status")),
    *(Use("get", "apps", kind) for kind in ("replicasets", "statefulsets")),
    *(Use(verb, "autoscaling.x-k8s.io", "provisioningrequests") for verb in ("list", "watch", "delete")),
    Use("patch", "autoscaling.x-k8s.io", "provisioningrequests/status"),
}
"""Written by `ec2/translation_controller.py` and `requests/controller.py`, and read by whoever asks for a pod's owner: they look the kind or version up."""

KUBE_SCHEDULER = {Use(verb, LEASES, "leases") for verb in ("get", "update")}
"""The other container of the pod: its own Lease. The rest of it is in the roles that every cluster has."""

OTHER_KARPENTER = "provisioner/kube/other_karpenter.py"
PROVISIONER_CODE = [
    *map(str, controllers()),
    *("provisioner/ec2", "provisioner/cloudprovider", "provisioner/kube/events.py"),
    *("certs/mutual.py", OTHER_KARPENTER),
]
PROVIDER_CODE = {
    "components/kwok": ["provisioner/cloudprovider/kwok"],
    "components/aws": [*map(str, aws()), "provisioner/ec2/cloud.py"],
}


@pytest.mark.parametrize(
    ("account", "paths", "not_in_code", "not_in_cluster"),
    [
        pytest.param(
            "dovetail-provisioner", PROVISIONER_CODE, FINALIZERS | BY_PATH | BY_TABLE, set(), id="provisioner"
        ),
        pytest.param("dovetail-webhook", ["webhook", "certs", OTHER_KARPENTER], set(), OUTSIDE, id="webhook"),
        pytest.param("dovetail-scheduler", ["extender"], KUBE_SCHEDULER, set(), id="extender and scheduler"),
    ],
)
def test_the_roles_grant_what_the_code_asks_for_and_nothing_else(
    account: str, paths: list[str], not_in_code: set[Use], not_in_cluster: set[Use]
) -> None:
    uses = asked_for(paths) - not_in_cluster
    assert len(uses) >= 6, "the source was not understood"
    assert granted(account) - not_in_code == uses - not_in_code
    assert not_in_code <= granted(account)


@pytest.mark.parametrize("part", PROVIDER_CODE)
def test_a_provider_needs_only_the_base_and_its_own_component(part: str) -> None:
    assert asked_for(PROVIDER_CODE[part]) <= granted("dovetail-provisioner", "base", part)


def test_nobody_may_create_a_secret_and_a_lease_only_by_its_name() -> None:
    """Who may create Secrets can make a token of any account; who may create every Lease can lead where nobody does yet."""
    creates = {
        (resource, bool(rule.get("resourceNames")))
        for account in ("dovetail-provisioner", "dovetail-webhook", "dovetail-scheduler")
        for namespace, rule in rules_of(account)
        for resource in rule["resources"]
        if "create" in rule["verbs"]
    }
    assert creates == {
        ("nodeclaims", False),
        ("nodepools", False),
        ("ec2nodeclasses", False),
        ("pods/eviction", False),
        ("events", False),
        ("tokenreviews", False),
        ("subjectaccessreviews", False),
        ("nodes", False),
        ("configmaps", True),
        ("leases", True),
    }


def test_what_programs_may_only_change_is_made_by_the_manifests() -> None:
    made = {(one["kind"], one["metadata"]["name"]) for one in ALL}
    kinds = {
        "leases": "Lease",
        "secrets": "Secret",
        "mutatingwebhookconfigurations": "MutatingWebhookConfiguration",
        "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
    }
    wanted = {
        (kinds[resource], name)
        for account in ("dovetail-provisioner", "dovetail-webhook", "dovetail-scheduler")
        for _, rule in rules_of(account)
        for resource in rule["resources"]
        if resource in kinds and {"patch", "update"} & set(rule["verbs"])
        for name in rule["resourceNames"]
    }
    example = (MANIFESTS / "examples" / "extender-certificates.yaml").read_text(encoding="utf-8")
    optional = {(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(example)}
    assert optional == {("Secret", EXTENDER_SERVER_SECRET), ("Secret", EXTENDER_CLIENT_SECRET)}
    assert len(wanted) == 11
    assert wanted <= made | optional


@pytest.mark.parametrize("kind", ["Secret", "Lease", "ConfigMap"])
def test_applying_again_takes_nothing_that_programs_wrote(kind: str) -> None:
    for one in of_kind(kind):
        assert one.keys() == {"apiVersion", "kind", "metadata"}, "no data and no type: they are the program's"
        assert "annotations" not in one["metadata"]


def test_without_the_webhook_nothing_of_it_is_left() -> None:
    patches = yaml.safe_load((MANIFESTS / "components" / "without-webhook" / "kustomization.yaml").read_text("utf-8"))
    deleted = [yaml.safe_load(one["patch"]) for one in patches["patches"]]
    assert all(one["$patch"] == "delete" for one in deleted)
    serving = ("webhook", "dovetail-certs")
    ours = [one for one in load("base") if any(word in one["metadata"]["name"] for word in serving)]
    assert {(one["kind"], one["metadata"]["name"]) for one in deleted} == {
        (one["kind"], one["metadata"]["name"]) for one in ours
    }


def test_the_read_only_webhook_may_write_nothing() -> None:
    text = (MANIFESTS / "components" / "webhook-read-only" / "rbac.yaml").read_text(encoding="utf-8")
    roles = list(yaml.safe_load_all(text))
    assert {(role["kind"], role["metadata"]["name"]) for role in roles} == {
        ("ClusterRole", "dovetail-webhook"),
        ("Role", "dovetail-webhook"),
    }
    for role in roles:
        base = {
            (resource, name): set(rule["verbs"])
            for rule in named(role["kind"], role["metadata"]["name"])["rules"]
            for resource in rule["resources"]
            for name in rule.get("resourceNames", [""])
        }
        for rule in role["rules"]:
            assert rule["verbs"] == ["list", "watch"]
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    assert {"list", "watch"} <= base[resource, name]


def test_our_requests_have_flow_schemas_before_those_of_ordinary_accounts() -> None:
    schemas = of_kind("FlowSchema")
    levels = {
        "dovetail-provisioner": {"leader-election", "workload-high"},
        "dovetail-webhook": {"leader-election", "workload-high"},
        "dovetail-scheduler": {"leader-election", "workload-high"},
    }
    found: dict[str, set[str]] = {}
    for schema in schemas:
        spec = schema["spec"]
        assert spec["distinguisherMethod"] == {"type": "ByUser"}
        level = spec["priorityLevelConfiguration"]["name"]
        assert (200 < spec["matchingPrecedence"] < 400) == (level == "leader-election")
        assert spec["matchingPrecedence"] < 900
        for rule in spec["rules"]:
            for subject in rule["subjects"]:
                assert subject["serviceAccount"]["namespace"] == NAMESPACE
                found.setdefault(subject["serviceAccount"]["name"], set()).add(level)
    assert found == levels


def test_dns_is_reachable_in_the_cluster_and_on_the_host_but_not_outside() -> None:
    (rule,) = (
        rule
        for rule in named("NetworkPolicy", "to-api-server-and-dns")["spec"]["egress"]
        if {port["port"] for port in rule["ports"]} == {53}
    )
    assert {port["protocol"] for port in rule["ports"]} == {"UDP", "TCP"}
    blocks = [ipaddress.ip_network(peer["ipBlock"]["cidr"]) for peer in rule["to"] if "ipBlock" in peer]
    node_local, services = "169.254.20.10", ("10.96.0.10", "172.20.0.10", "10.100.0.10", "192.168.0.10", "fd12::a")
    for address in (node_local, *services):
        assert any(ipaddress.ip_address(address) in block for block in blocks), address
    assert all(block.is_private or block == ipaddress.ip_network("100.64.0.0/10") for block in blocks)
    selectors = [peer["namespaceSelector"] for peer in rule["to"] if "namespaceSelector" in peer]
    assert selectors == [{"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}]


OTHER_AUTOSCALERS = ({KARPENTER_LEASE}, {KARPENTER_LEASE, CLUSTER_AUTOSCALER_LEASE})
"""Leases that are read in other namespaces, by their names, of which some may not exist."""


def test_no_rule_has_a_wildcard_and_secrets_and_leases_are_of_our_namespace_only() -> None:
    for role in (*of_kind("ClusterRole"), *of_kind("Role")):
        for rule in role["rules"]:
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"])
            if rule["resources"] == ["leases"] and set(rule.get("resourceNames", ())) in OTHER_AUTOSCALERS:
                assert rule["verbs"] == ["get"] or role["kind"] == "Role"
                continue
            if role["kind"] == "ClusterRole":
                assert not {"secrets", "leases", "configmaps"} & set(rule["resources"])
            if role["metadata"].get("namespace") == "kube-system":
                assert (rule["verbs"], bool(rule.get("resourceNames"))) == (["get"], True)


def kept_maps() -> list[str]:
    """Every ConfigMap that the provisioner may write."""
    tables = tables_of(Shortages(), MemoryTable(), TemplateUses())
    return sorted({one.map_name(index) for one in tables for index in range(MAX_PARTS)})


def test_what_can_be_limited_to_a_name_is() -> None:
    limited = {
        (account, resource, *sorted(rule.get("resourceNames", ())))
        for account in ("dovetail-provisioner", "dovetail-webhook", "dovetail-scheduler")
        for _, rule in rules_of(account)
        for resource in rule["resources"]
        if resource
        in ("secrets", "configmaps", "leases", "mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        and rule["verbs"] != ["create"]
    }
    assert limited == {
        ("dovetail-provisioner", "leases", LEASE_NAME),
        ("dovetail-provisioner", "leases", CLUSTER_AUTOSCALER_LEASE, KARPENTER_LEASE),  # whether they run beside us
        ("dovetail-provisioner", "configmaps", "dovetail-discounts"),
        ("dovetail-provisioner", "configmaps", "dovetail-settings"),
        ("dovetail-provisioner", "configmaps", names.INSTALLATION_CONFIGMAP),
        ("dovetail-provisioner", "configmaps", "dovetail-defaults"),
        ("dovetail-provisioner", "configmaps", "dovetail-conversion"),
        ("dovetail-webhook", "leases", "karpenter-leader-election"),
        ("dovetail-provisioner", "configmaps", *kept_maps()),
        ("dovetail-webhook", "secrets", webhook_server.DEFAULT_SECRET),
        (
            "dovetail-provisioner",
            "secrets",
            EXTENDER_CLIENT_SECRET,
            EXTENDER_SERVER_SECRET,
            REPORT_CLIENT_SECRET,
            REPORT_SERVER_SECRET,
        ),
        ("dovetail-webhook", "configmaps", "dovetail-defaults"),
        ("dovetail-webhook", "mutatingwebhookconfigurations", "dovetail-webhook"),
        ("dovetail-webhook", "validatingwebhookconfigurations", "dovetail-webhook"),
        ("dovetail-webhook", "leases", "dovetail-certs", "dovetail-certs-replicas"),
        ("dovetail-webhook", "leases", "dovetail-scheduler"),
        ("dovetail-scheduler", "leases", LEASE_NAME),
        ("dovetail-scheduler", "leases", "dovetail-scheduler"),
    }


def test_every_account_that_a_pod_uses_is_there_and_no_pod_uses_the_default_one() -> None:
    used = {pod.values[0]["serviceAccountName"] for pod in PODS}  # type: ignore[index]
    assert used == {account["metadata"]["name"] for account in of_kind("ServiceAccount")}


def test_our_objects_of_a_namespace_are_in_ours() -> None:
    elsewhere = {
        (one["kind"], one["metadata"]["name"]): one["metadata"]["namespace"]
        for one in ALL
        if one["metadata"].get("namespace", NAMESPACE) != NAMESPACE
    }
    assert elsewhere == {
        ("RoleBinding", "dovetail-scheduler-authentication-reader"): "kube-system",
        ("Role", "dovetail-provisioner-cluster-facts"): "kube-system",
        ("RoleBinding", "dovetail-provisioner-cluster-facts"): "kube-system",
    }


def kustomization_of(directory: str) -> Document:
    found = yaml.safe_load((MANIFESTS / directory / "kustomization.yaml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def added_arguments(directory: str) -> list[str]:
    """What the patches of a component add to the arguments of the one container that they name."""
    operations = [
        operation
        for patch in kustomization_of(directory)["patches"]
        if "target" in patch
        for operation in yaml.safe_load(patch["patch"])
    ]
    assert {(one["op"], one["path"]) for one in operations} == {("add", "/spec/template/spec/containers/0/args/-")}
    return [one["value"] for one in operations]


@pytest.mark.parametrize("provider", ["kwok", "aws"])
def test_a_provider_is_chosen_by_its_component_alone(provider: str) -> None:
    container = container_of("provisioner")
    assert not [flag for flag in container["args"] if "--provider" in flag]
    added = added_arguments(f"components/{provider}")
    options = Options.parse([*container["args"][1:], *added], {"CLUSTER_NAME": "c"})
    assert options.provider == provider


def test_every_overlay_has_one_provider_and_only_the_complete_one_a_scheduler() -> None:
    """On AWS the version of the API server is the user's; a kube-scheduler must not be newer."""
    overlays = {path.parent.name: kustomization_of(f"overlays/{path.parent.name}") for path in OVERLAYS}
    assert {name: one["components"] for name, one in overlays.items()} == {
        "kwok": ["../../components/kwok"],
        "complete": ["../../components/kwok"],
        "aws": ["../../components/aws"],
    }
    assert {name: one["resources"] for name, one in overlays.items()} == {
        "kwok": ["../../base"],
        "complete": ["../../base", "../../scheduler"],
        "aws": ["../../base"],
    }


OVERLAYS = sorted((MANIFESTS / "overlays").glob("*/kustomization.yaml"))


def test_on_aws_the_provisioner_takes_its_flags_and_variables() -> None:
    directory = MANIFESTS / "overlays" / "aws"
    (patch,) = kustomization_of("overlays/aws")["patches"]
    change = yaml.safe_load((directory / patch["path"]).read_text(encoding="utf-8"))
    base = named("Deployment", "dovetail-provisioner")
    assert (change["kind"], change["metadata"]) == (
        "Deployment",
        {key: base["metadata"][key] for key in ("name", "namespace")},
    )
    (container,) = change["spec"]["template"]["spec"]["containers"]
    arguments = [*container_of("provisioner")["args"][1:], *added_arguments("components/aws")]
    options = Options.parse(arguments, {one["name"]: one["value"] for one in container["env"]})
    settings = AwsSettings.of(options, "eu-west-1")
    assert (settings.cluster_name, settings.interruption_queue) == ("my-cluster", "my-cluster")
    assert settings.discounts == f"{CONFIG_MAP}dovetail-discounts"
    policy = named("NetworkPolicy", "provisioner-to-credentials")
    assert policy["spec"]["podSelector"] == named("NetworkPolicy", "provisioner")["spec"]["podSelector"]


def test_the_read_only_webhook_takes_its_flags() -> None:
    arguments = [*container_of("webhook")["args"][1:], *added_arguments("components/webhook-read-only")]
    values = webhook_server.command.make_context("webhook", arguments).params
    assert (values["existing_secret"], values["existing_bundle"]) == (True, True)


IMAGES = "components/image-architectures"


def test_the_webhook_takes_the_registries_of_its_component() -> None:
    arguments = [*container_of("webhook")["args"][1:], *added_arguments(IMAGES)]
    values = webhook_server.command.make_context("webhook", arguments).params
    assert parse_registries(values["image_registries"]) == tuple(
        ListedImage(Pattern(Host(name)))
        for name in ("docker.io", "public.ecr.aws", "ghcr.io", "quay.io", "registry.k8s.io")
    )


def test_the_guide_s_overlay_replaces_the_registries_and_opens_another_port_for_the_webhook_alone() -> None:
    text = (MANIFESTS.parent / "docs" / "guides" / "admission.md").read_text(encoding="utf-8")
    text = text[text.index("## Architectures of images") :]
    patches, policy = (yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    (patch,) = patches["patches"]
    (added,) = yaml.safe_load(patch["patch"])
    (component,) = kustomization_of(IMAGES)["patches"]
    assert patch["target"].items() <= component["target"].items()
    assert (added["op"], added["path"]) == ("add", "/spec/template/spec/containers/0/args/-")
    arguments = [*container_of("webhook")["args"][1:], *added_arguments(IMAGES), added["value"]]
    values = webhook_server.command.make_context("webhook", arguments).params
    (*_, last) = parse_registries(values["image_registries"])
    assert last.registry == Pattern(Host("registry.example.com", 5000))
    assert policy["metadata"]["namespace"] == NAMESPACE
    assert policy["spec"]["podSelector"] == named("NetworkPolicy", "webhook")["spec"]["podSelector"]
    assert policy["spec"]["egress"] == [{"ports": [{"protocol": "TCP", "port": last.registry.host.port}]}]


def test_the_webhook_reaches_the_pod_identity_of_eks_and_no_metadata() -> None:
    (policy,) = (one for one in load(IMAGES) if one["kind"] == "NetworkPolicy")
    assert policy["spec"]["podSelector"] == named("NetworkPolicy", "webhook")["spec"]["podSelector"]
    assert policy["spec"]["policyTypes"] == ["Egress"]
    (rule,) = policy["spec"]["egress"]
    assert {one["ipBlock"]["cidr"] for one in rule["to"]} == {"169.254.170.23/32", "fd00:ec2::23/128"}
    assert rule["ports"] == [{"protocol": "TCP", "port": 80}]


def test_looking_up_images_needs_little_and_secrets_only_where_somebody_binds_that_role() -> None:
    pods = {Use(verb, "", "pods") for verb in ("get", "list", "watch", "patch")}
    events = {Use(verb, "", "events") for verb in ("create", "patch")}
    assert granted("dovetail-webhook", IMAGES) == pods | events | {Use("list", "", "nodes")}
    found = {one["metadata"]["name"]: one for one in load(IMAGES) if one["kind"] == "ClusterRole"}
    assert found["dovetail-webhook-pull-secrets"]["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    ]


def test_the_feature_gate_is_taken_off_where_the_component_for_old_schedulers_looks_for_it() -> None:
    (patch,) = kustomization_of("components/scheduler-before-1.35")["patches"]
    test, remove = yaml.safe_load(patch["patch"])
    command = container_of("kube-scheduler")["command"]
    assert (test["op"], remove["op"]) == ("test", "remove")
    assert test["path"] == remove["path"]
    assert command[int(test["path"].rsplit("/", 1)[1])] == test["value"] == f"--feature-gates={FEATURE_GATES}"


def test_the_aws_example_asks_for_the_pools_of_the_demo() -> None:
    text = {
        where: (MANIFESTS / "examples" / where / "nodepools.yaml").read_text(encoding="utf-8") for where in ("", "aws")
    }
    pools = {
        where: {one["metadata"]["name"]: one for one in yaml.safe_load_all(found) if one["kind"] == "NodePool"}
        for where, found in text.items()
    }
    assert pools[""].keys() == pools["aws"].keys()
    for name, pool in pools["aws"].items():
        template, other = pool["spec"]["template"], pools[""][name]["spec"]["template"]
        assert template.get("metadata") == other.get("metadata")
        assert template["spec"].get("taints") == other["spec"].get("taints")
        assert template["spec"]["nodeClassRef"]["group"] == ec2.GROUP


def test_the_example_certificates_are_the_secrets_that_the_pods_mount() -> None:
    text = (MANIFESTS / "examples" / "report-certificates.yaml").read_text(encoding="utf-8")
    made = {one["spec"]["secretName"]: one["spec"] for one in yaml.safe_load_all(text) if one["kind"] == "Certificate"}
    mounted = {
        volume["secret"]["secretName"]
        for pod in PODS
        for volume in pod.values[0]["volumes"]  # type: ignore[index]
        if "secret" in volume
    }
    assert mounted == made.keys() - {"dovetail-report-ca"}
    names = made["dovetail-report-server-tls"]["dnsNames"]
    assert [f"--reports-server-name={name}" for name in names] == [
        flag for flag in container_of("extender")["args"] if flag.startswith("--reports-server-name")
    ]


def test_no_role_names_a_generated_object_because_kustomize_would_rename_it_there() -> None:
    kustomization = yaml.safe_load((MANIFESTS / "scheduler" / "kustomization.yaml").read_text(encoding="utf-8"))
    generated = {one["name"] for one in kustomization["configMapGenerator"]}
    named_in_roles = {
        name
        for role in (*of_kind("ClusterRole"), *of_kind("Role"))
        for rule in role["rules"]
        for name in rule.get("resourceNames", ())
    }
    assert not generated & named_in_roles
    (volume,) = (
        one
        for one in named("Deployment", "dovetail-scheduler")["spec"]["template"]["spec"]["volumes"]
        if "configMap" in one
    )
    assert {volume["configMap"]["name"]} == generated
