"""Architectures of images, asked of a real registry: the protocol, and what becomes of pods on a real control plane."""

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.apis import names
from provisioner.apis.stamping import StampFacts
from provisioner.kube.client import Client
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.state import waiting
from provisioner.support.clock import SystemClock
from tests.support.eventually import PATIENCE, eventually
from tests.support.hook import HOME, PROGRAM, Hook, requirements
from tests.support.imagehosts import Answer, Asked, Hosts, Store, digest_of, encoded, hosts, index
from tests.support.kubeconfigs import service_account_kubeconfig
from tests.support.provisioner import InProcess, Plot
from tests.support.registry import (
    PASSWORD,
    USER,
    Authorities,
    RealRegistry,
    TokenMaker,
    config_of,
    password,
    registry,
    with_password,
)
from webhook.images.documents import Login, Platform
from webhook.images.references import Reference, parse
from webhook.images.registry import LookupFailedError, Registry, client_context
from webhook.images.service import ImageService, settings_of
from webhook.images.transport import Transport
from webhook.images.trust import Trust, parse_networks, parse_registries

AMD64, ARM64 = Platform("linux", "amd64"), Platform("linux", "arm64")
PENDING = "dovetail.dev/image-arch-pending"
LOOPBACK = "127.0.0.0/8"


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("registries"))


@pytest.fixture(scope="module")
def public(authorities: Authorities) -> Iterator[RealRegistry]:
    """A registry that everybody may read."""
    with registry(authorities, "public") as made:
        yield made


@pytest.fixture(scope="module")
def private(authorities: Authorities) -> Iterator[RealRegistry]:
    """A registry with a password."""
    with registry(authorities, "private", with_password(authorities)) as made:
        made.authorization = password()
        yield made


def asking(authorities: Authorities, registries: str) -> Registry:
    trust = Trust(parse_registries(registries), parse_networks(LOOPBACK))
    context = client_context(str(authorities.ca))
    return Registry(Transport(trust, context, time.monotonic), trust, time.monotonic)


def nobody() -> Login | None:
    return None


def of(at: RealRegistry, image: str) -> Reference:
    return parse(f"{at.at}/{image}")


# --- the protocol -------------------------------------------------------------------------------------------------------


def test_images_of_every_kind_are_told_apart(authorities: Authorities, public: RealRegistry) -> None:
    ask = asking(authorities, public.at)
    both = public.index("team/multi", "1", AMD64, ARM64)
    attested = public.index("team/attested", "1", AMD64, attested=True)
    single = public.image("team/single", "1", "linux", "arm64")
    for image, digest, platforms in (
        ("team/multi:1", both, {AMD64, ARM64}),
        ("team/attested:1", attested, {AMD64}),
        ("team/single:1", single, {ARM64}),
    ):
        found = ask.look(of(public, image), nobody)
        assert (set(found.platforms), found.digest) == (platforms, digest)
        assert ask.look(of(public, f"{image}@{digest}"), nobody).platforms == platforms


def test_broken_images_are_told_from_registries_that_fail(authorities: Authorities, public: RealRegistry) -> None:
    ask = asking(authorities, public.at)
    public.image("team/chart", "1", "linux", "amd64", config_type="application/vnd.cncf.helm.config.v1+json")
    public.image("team/odd", "1", "linux", "vax")
    public.image("team/damaged", "1", "linux", "riscv64")
    public.damage(digest_of(config_of("linux", "riscv64")))
    for image, words in (
        ("team/chart:1", "does not describe a container image"),
        ("team/odd:1", "contains no platform"),
        ("team/damaged:1", "does not match the digest|HTTP 5|answers 5|connection|incomplete"),
        ("team/gone:1", "does not have the image"),
        ("team/gone@sha256:" + "0" * 64, "does not have the image"),
    ):
        with pytest.raises(LookupFailedError, match=words):
            ask.look(of(public, image), nobody)


def test_a_password_opens_a_private_registry(authorities: Authorities, private: RealRegistry) -> None:
    ask = asking(authorities, private.at)
    private.index("team/app", "1", AMD64)
    assert ask.look(of(private, "team/app:1"), lambda: Login(USER, PASSWORD)).platforms == {AMD64}
    for login in (nobody, lambda: Login(USER, "wrong")):
        with pytest.raises(LookupFailedError, match="denies access") as caught:
            ask.look(of(private, "team/app:1"), login)
        assert caught.value.ours


@pytest.fixture
def tokens(authorities: Authorities, tmp_path: Path) -> Iterator[tuple[RealRegistry, Hosts, TokenMaker]]:
    """A registry that wants tokens, and the service that makes them: for the user everything, for others nothing."""
    maker = TokenMaker(authorities)

    def respond(asked: Asked) -> Answer:
        (scope,) = asked.query["scope"]
        repository = scope.split(":")[1]
        may = ("pull",) if asked.headers.get("authorization") == password() else ()
        return Answer(200, encoded({"token": maker.token(repository, *may)}))

    with (
        hosts(respond, tmp_path) as made,
        registry(authorities, "tokens-registry", maker.section(f"https://127.0.0.1:{made.port}/token")) as found,
    ):
        yield found, made, maker


def test_a_token_is_asked_of_the_realm_that_is_listed_and_shown_to_the_registry(
    authorities: Authorities, tokens: tuple[RealRegistry, Hosts, TokenMaker], tmp_path: Path
) -> None:
    found, service, maker = tokens
    found.authorization = f"Bearer {maker.token('team/app', 'pull', 'push')}"
    found.image("team/app", "1", "linux", "arm64")
    both = tmp_path / "both.pem"
    both.write_bytes(authorities.ca.read_bytes() + service.ca.read_bytes())

    def ask(registries: str) -> Registry:
        trust = Trust(parse_registries(registries), parse_networks(LOOPBACK))
        return Registry(Transport(trust, client_context(str(both)), time.monotonic), trust, time.monotonic)

    listed = f"{found.at}=127.0.0.1:{service.port}"
    assert ask(listed).look(of(found, "team/app:1"), lambda: Login(USER, PASSWORD)).platforms == {ARM64}
    assert [one.path for one in service.asked] == ["/token"], "one token for manifest and configuration"
    with pytest.raises(LookupFailedError, match="denies access"):
        ask(listed).look(of(found, "team/app:1"), nobody)
    asked = len(service.asked)
    with pytest.raises(LookupFailedError, match="does not allow"):
        ask(found.at).look(of(found, "team/app:1"), lambda: Login(USER, PASSWORD))
    assert len(service.asked) == asked, "a realm that is not listed hears nothing"


# --- pods -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A registry that answers after three seconds: that web/late:1 is for arm64."""
    store = Store()
    store.list("web/late", "1", index(("linux", "arm64")))

    def respond(asked: Asked) -> Answer:
        threading.Event().wait(3.0)
        return store(asked)

    with hosts(respond, tmp_path_factory.mktemp("late")) as made:
        yield made


@pytest.fixture(scope="module")
def hook(
    plane: DevCluster,
    authorities: Authorities,
    public: RealRegistry,
    private: RealRegistry,
    late: Hosts,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Hook]:
    """The program, which may ask all three registries."""
    directory = tmp_path_factory.mktemp("certs")
    ca = directory / "registries.pem"
    ca.write_bytes(authorities.ca.read_bytes() + late.ca.read_bytes())
    registries = f"{public.at},{private.at},127.0.0.1:{late.port}"
    flags = ["--image-registries", registries, "--image-registry-networks", LOOPBACK, "--image-registry-ca", str(ca)]
    hook = Hook(plane, directory, *flags)
    hook.start()
    hook.ask_patiently()
    try:
        yield hook
    finally:
        hook.close()


def containers(*images: str) -> dict[str, Any]:
    return {"containers": [{"name": f"c{at}", "image": image} for at, image in enumerate(images)]}


def read(hook: Hook, pod: dict[str, Any]) -> dict[str, Any]:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    found: dict[str, Any] = json.loads(hook.client.raw("GET", path))
    return found


def once(hook: Hook, pod: dict[str, Any], what: Callable[[dict[str, Any]], object], words: str) -> dict[str, Any]:
    """The pod, once something is true of it."""

    def look() -> dict[str, Any] | None:
        found = read(hook, pod)
        return found if what(found) else None

    found = eventually(look, words, seconds=30)
    assert found is not None
    return found


def unmarked(pod: dict[str, Any]) -> bool:
    return PENDING not in pod["metadata"].get("labels", {})


def arch(*values: str) -> dict[str, Any]:
    return {"key": "kubernetes.io/arch", "operator": "In", "values": list(values)}


def test_the_first_pod_is_told_and_the_next_is_stamped(hook: Hook, public: RealRegistry) -> None:
    public.index("web/first", "1", ARM64)
    namespace = hook.namespace(image_arch="stamp")
    image = containers(f"{public.at}/web/first:1")
    first = hook.create(namespace, **image)
    assert requirements(first) == []
    assert first["metadata"]["labels"] == {PENDING: "true"}
    told = once(hook, first, unmarked, "the first pod is told")
    assert told["metadata"]["annotations"] == {"dovetail.dev/image-architectures": "arm64"}
    second = hook.create(namespace, **image)
    assert requirements(second) == [arch("arm64")]
    assert (
        second["metadata"]["annotations"]["dovetail.dev/stamped"]
        == "image-arch=arm64 (namespace: architectures of the images)"
    )


def _is_held(hook: Hook, namespace: str, public: RealRegistry) -> bool:
    """Whether the program holds pods: it knows its rights and its watch stands."""
    image = f"{public.at}/web/probe-{time.monotonic_ns()}:1"
    return "schedulingGates" in hook.create(namespace, **containers(image))["spec"]


def test_a_pod_is_held_until_its_images_are_known_and_then_goes_where_they_run(
    hook: Hook, public: RealRegistry
) -> None:
    namespace = hook.namespace(image_arch="gate")
    eventually(lambda: _is_held(hook, namespace, public), "pods can be held")
    public.index("web/held2", "1", AMD64)
    pod = hook.create(namespace, **containers(f"{public.at}/web/held2:1"))
    assert pod["spec"]["schedulingGates"] == [{"name": "dovetail.dev/image-arch"}]
    gone = once(hook, pod, lambda one: not one["spec"].get("schedulingGates"), "the pod is let go")
    assert requirements(gone) == [arch("amd64")]
    assert unmarked(gone)


def test_a_pod_of_which_nothing_can_be_known_is_not_held_for_long(hook: Hook, public: RealRegistry) -> None:
    namespace = hook.namespace(image_arch="gate")
    eventually(lambda: _is_held(hook, namespace, public), "pods can be held")
    pod = hook.create(namespace, **containers(f"{public.at}/web/missing:1"))
    assert pod["spec"]["schedulingGates"]
    gone = once(hook, pod, lambda one: not one["spec"].get("schedulingGates"), "the pod is let go")
    assert requirements(gone) == []
    other = hook.create(namespace, **containers("registry.example.com/web:1"))
    assert "schedulingGates" not in other["spec"], "nobody may be asked"
    assert unmarked(other)


def test_a_pull_secret_of_the_namespace_opens_its_registry_and_no_other_namespace(
    hook: Hook, private: RealRegistry
) -> None:
    private.index("web/private", "1", ARM64)
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    document = json.dumps({"auths": {private.at: {"auth": login}}}).encode()
    secret = {
        "metadata": {"name": "pull"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(document).decode()},
    }
    mine, theirs = (hook.namespace(image_arch="stamp") for _ in range(2))
    hook.client.raw("POST", f"/api/v1/namespaces/{mine}/secrets", secret)
    spec = {**containers(f"{private.at}/web/private:1"), "imagePullSecrets": [{"name": "pull"}]}
    told = once(hook, hook.create(mine, **spec), unmarked, "the pod is told")
    assert told["metadata"]["annotations"] == {"dovetail.dev/image-architectures": "arm64"}
    stranger = once(hook, hook.create(theirs, **spec), unmarked, "the stranger's pod is left alone")
    assert stranger["metadata"].get("annotations", {}) == {}
    without = once(
        hook, hook.create(mine, **containers(f"{private.at}/web/private:1")), unmarked, "so is a pod without the secret"
    )
    assert without["metadata"].get("annotations", {}) == {}


def test_images_with_nothing_in_common_are_an_event(hook: Hook, public: RealRegistry) -> None:
    public.index("web/a", "1", AMD64)
    public.index("web/b", "1", ARM64)
    namespace = hook.namespace(image_arch="stamp")
    pod = once(
        hook,
        hook.create(namespace, **containers(f"{public.at}/web/a:1", f"{public.at}/web/b:1")),
        unmarked,
        "it is told",
    )
    path = f"/api/v1/namespaces/{namespace}/events"

    def said() -> list[str]:
        events = json.loads(hook.client.raw("GET", path))["items"]
        return [one["reason"] for one in events if one["involvedObject"]["name"] == pod["metadata"]["name"]]

    eventually(lambda: "NoCommonArchitecture" in said(), "an event says so")


# --- with the provisioner -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def provisioner(plane: DevCluster, client: Client, hook: Hook) -> Iterator[InProcess]:
    """It plans what the webhook admits."""
    with InProcess(str(plane.kubeconfig)) as one:
        yield one


@pytest.fixture
def plot(client: Client, provisioner: InProcess) -> Iterator[Plot]:
    """Nodes of 4 CPU for amd64, preferred, and dearer ones of 16 CPU for arm64."""
    one = Plot(client)
    one.pool("-cheap", cpu=4, weight=10)
    of_arm = [
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["16"]},
        {"key": names.ARCH_LABEL, "operator": "In", "values": ["arm64"]},
    ]
    one.pool("-dear", template={"requirements": of_arm})
    yield one
    one.clear()


@pytest.mark.parametrize("is_late", [False, True])
def test_the_first_pod_of_an_image_gets_a_node_that_runs_it_and_no_other_is_bought_for_it(
    provisioner: InProcess,
    plot: Plot,
    public: RealRegistry,
    late: Hosts,
    monkeypatch: pytest.MonkeyPatch,
    is_late: bool,
) -> None:
    monkeypatch.setattr(waiting, "IMAGES_SECONDS", waiting.IMAGES_SECONDS * PATIENCE)
    if is_late:
        image = f"127.0.0.1:{late.port}/web/late:1"
    else:
        public.index("web/planned", "1", ARM64)
        image = f"{public.at}/web/planned:1"
    before = provisioner.writes().get("create nodeclaims", 0)
    wanted = {"cpu": "3", "memory": "64Mi"}
    container = {"name": "web", "image": image, "resources": {"requests": wanted}}
    plot.deploy("web", 1, containers=[container], annotations={"dovetail.dev/image-arch": "stamp"})
    plot.await_running(1)
    (pod,) = plot.pods()
    assert pod.annotations[names.IMAGE_ARCHITECTURES] == "arm64", "it was admitted before its image was known"
    (node,) = plot.nodes()
    assert (node.metadata.name, node.metadata.labels[names.ARCH_LABEL]) == (pod.node_name, "arm64")
    assert provisioner.writes()["create nodeclaims"] - before == 1


# --- rights -------------------------------------------------------------------------------------------------------------

COMPONENT = Path(__file__).parents[2] / "manifests" / "components" / "image-architectures" / "rbac.yaml"


def gated(namespace: str) -> StampFacts | None:
    """Every namespace holds its pods."""
    return StampFacts(namespace, {"dovetail.dev/image-arch": "gate"})


@pytest.fixture
def service(
    plane: DevCluster, authorities: Authorities, public: RealRegistry, private: RealRegistry, hook: Hook
) -> Iterator[ImageService]:
    """What looks after pods, with the rights of the component and no others."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "dovetail-webhook", "namespace": HOME},
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(account))
    plane.kubectl("apply", "-f", str(COMPONENT))
    settings = settings_of(f"{public.at},{private.at}", LOOPBACK, "", str(authorities.ca))
    assert settings is not None
    kubeconfig = service_account_kubeconfig(plane, HOME, "dovetail-webhook")
    made = ImageService(settings, str(kubeconfig), gated, SystemClock())
    plane.stop(PROGRAM)  # nobody else does it
    made.start()
    try:
        yield made
    finally:
        made.stop()
        plane.kubectl("delete", "-f", str(COMPONENT))
        hook.start()


def test_the_rights_of_the_component_suffice_and_secrets_are_read_only_where_somebody_allows_it(
    plane: DevCluster, hook: Hook, service: ImageService, public: RealRegistry, private: RealRegistry
) -> None:
    eventually(lambda: service.marked.may_gate("default"), "it may let pods go")
    public.index("web/rights", "1", ARM64)
    private.index("web/rights", "1", ARM64)
    namespace = hook.namespace()

    def pod(registry: RealRegistry, *secrets: str) -> dict[str, Any]:
        spec: dict[str, Any] = containers(f"{registry.at}/web/rights:1")
        spec["schedulingGates"] = [{"name": "dovetail.dev/image-arch"}]
        if secrets:
            spec["imagePullSecrets"] = [{"name": one} for one in secrets]
        return hook.create(namespace, labels={PENDING: "true"}, **spec)

    def gone(one: dict[str, Any]) -> list[dict[str, Any]]:
        return requirements(once(hook, one, lambda found: not found["spec"].get("schedulingGates"), "it is let go"))

    assert gone(pod(public)) == [arch("arm64")]
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    document = json.dumps({"auths": {private.at: {"auth": login}}}).encode()
    for name in ("before", "after"):
        data = {".dockerconfigjson": base64.b64encode(document).decode()}
        secret = {"metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson", "data": data}
        hook.client.raw("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
    assert gone(pod(private, "before")) == [], "nobody allowed to read it"
    binding = ["create", "rolebinding", "pulls", "--clusterrole=dovetail-webhook-pull-secrets"]
    plane.kubectl("-n", namespace, *binding, f"--serviceaccount={HOME}:dovetail-webhook")
    assert gone(pod(private, "after")) == [arch("arm64")]
