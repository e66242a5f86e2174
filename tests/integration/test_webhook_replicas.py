"""Two replicas of the webhook program behind what spreads connections over them, on IPv4 and on IPv6, while pods are created: a renewal, SIGKILL, a certificate that ended."""

import contextlib
import itertools
import json
import signal
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final

import pytest

from certs.injection import certificates, merge
from certs.rotation import LEADER_LEASE
from certs.store import LEAF_DAYS, SecretNames, SecretStore, mint
from provisioner.kube.resources import LEASES, MUTATINGWEBHOOKS, SECRETS
from provisioner.lab.devcluster.cluster import DevCluster
from provisioner.lab.harness.session import Session, Setup
from provisioner.support.clock import SystemClock
from tests.support import hasty_webhook
from tests.support.definitions import with_definitions
from tests.support.eventually import PATIENCE, eventually
from tests.support.hook import ARM64, HOME, IN_ARM64, SECRET, Hook, Replicas, replicas, requirements, split_address
from tests.support.imagehosts import Answer, Asked, Hosts, Store, hosts, index
from tests.support.pace import slowness
from tests.support.shares import Web, is_seated, on_demand
from webhook.registration import CONFIGURATION_NAME
from webhook.server import DEFAULT_SERVICE

pytestmark = pytest.mark.plane

PODS_PER_SECOND: Final = 50
BURST: Final = 40
"""Pods that are created at the same moment: more than the connections that an API server keeps, so that each burst makes new ones."""
WORKLOAD: Final = 40


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """A registry."""
    with hosts(Store(), tmp_path_factory.mktemp("registry")) as made:
        yield made


@pytest.fixture(scope="module")
def pair(plane: DevCluster, images: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Two replicas with everything that they have to remember or to come back to."""
    flags = ["--on-demand-shares", "--image-registries", f"127.0.0.1:{images.port}"]
    flags += ["--image-registry-networks", "127.0.0.0/8", "--image-registry-ca", str(images.ca)]
    with_definitions(plane)
    directories = [tmp_path_factory.mktemp("certs") for _ in range(2)]
    with replicas(plane, directories, *flags, module=hasty_webhook.__name__) as found:
        yield found


class Crowd:
    """Who creates pods all the time, so many a second; `stamps` is what was required of each pod, in the order of the answers."""

    def __init__(self) -> None:
        self.stamps: list[list[dict[str, Any]]] = []
        self.seconds = 0.0

    def goes_on(self, pods: int) -> bool:
        """Whether so many more pods are created in time."""
        enough = len(self.stamps) + pods
        return eventually(lambda: len(self.stamps) >= enough, "pods are created", seconds=60)


@contextlib.contextmanager
def crowd(hook: Hook, pods_per_second: float, burst: int = 1) -> Iterator[Crowd]:
    """Pods that ask for arm64 while the block runs; a creation that fails fails the block at its end."""
    namespace = hook.namespace()
    made, started, ended = Crowd(), time.monotonic(), threading.Event()
    turns = itertools.count()

    def create() -> None:
        while True:
            due = started + next(turns) // burst * burst / pods_per_second
            if ended.wait(max(0.0, due - time.monotonic())):
                return
            made.stamps.append(requirements(hook.create(namespace, ARM64)))

    with ThreadPoolExecutor(BURST) as pool:
        threads = [pool.submit(create) for _ in range(BURST)]
        try:
            yield made
        finally:
            made.seconds = time.monotonic() - started
            ended.set()
        for one in threads:
            one.result()
    hook.client.raw("DELETE", f"/api/v1/namespaces/{namespace}/pods")


def bundle(hook: Hook) -> bytes:
    return hook.client.get(MUTATINGWEBHOOKS, CONFIGURATION_NAME).webhooks[0].client_config.ca_bundle or b""


def served(pair: Replicas) -> set[bytes]:
    """The certificates that new connections get."""
    return {ssl.get_server_certificate(split_address(one.address)).encode() for one in pair.hooks}


def slowness_of(plane: DevCluster) -> float:
    run = Session(Setup("pace"), plane, print)
    run.observer.start()
    try:
        return slowness(run)
    finally:
        run.observer.stop()


def test_a_renewal_loses_no_pod(pair: Replicas) -> None:
    """Fifty pods a second until the former CA is trusted no more: none fails, and none comes back unstamped."""
    hook = pair.hooks[0]
    hook.ask_patiently()  # an answer that is late loses its pod, too, and says nothing of the renewal
    eventually(lambda: len(certificates(bundle(hook))) == 1, "no other renewal is under way", seconds=60)
    before, trusted = served(pair), [bundle(hook)]
    with crowd(hook, 1.2 * PODS_PER_SECOND, BURST) as made:
        made.goes_on(BURST)
        hook.client.delete(SECRETS, SECRET, HOME)  # the leader mints anew, under another CA

        def pruned() -> bool:
            found = bundle(hook)
            if found != trusted[-1]:
                trusted.append(found)
            return len(trusted) > 1 and len(certificates(found)) == 1

        eventually(lambda: pruned() or not served(pair) & before, "both serve the new certificate", seconds=60)
        connections = list(pair.splitter.taken)
        eventually(pruned, "the former CA is trusted no more", seconds=60)
        made.goes_on(2 * BURST)
    rate = len(made.stamps) / made.seconds
    print(f"{len(made.stamps)} pods in {made.seconds:.1f} s: {rate:.0f} a second through a renewal")
    assert [one for one in made.stamps if one != [IN_ARM64]] == []
    material = hook.client.get(SECRETS, SECRET, HOME).data
    assert served(pair) == {material["tls.crt"]}
    former, both, last = map(certificates, trusted)
    assert both.keys() == former.keys() | last.keys(), "old and new were trusted side by side"
    assert last.keys() == certificates(material["ca.crt"]).keys()
    after = zip(pair.splitter.taken, connections, strict=True)
    assert all(now > then for now, then in after), "each was called anew with the new certificate"
    if rate < PODS_PER_SECOND:
        assert rate >= PODS_PER_SECOND / (PATIENCE * slowness_of(hook.plane))


def test_both_are_killed_at_once_while_pods_are_created(pair: Replicas, images: Hosts) -> None:
    """No creation fails; shares are counted again from what is there, and a pod that was held is let go with what its image is for."""
    hook = pair.hooks[0]
    answering = threading.Event()
    store = Store()
    store.list("web/app", "1", index(("linux", "arm64")))

    def respond(asked: Asked) -> Answer:
        answering.wait(60)
        return store(asked)

    images.respond = respond
    web = Web(hook, WORKLOAD)
    namespace = hook.namespace(image_arch="gate")
    container = {"name": "c", "image": f"127.0.0.1:{images.port}/web/app:1"}
    pods = web.settled(WORKLOAD)
    assert all(map(is_seated, pods))
    with crowd(hook, 20) as made:
        made.goes_on(5)
        held = eventually(lambda: _held(hook.create(namespace, containers=[container])), "a pod is held")
        for one in pair.hooks:
            hook.plane.signal(one.program, signal.SIGKILL)
        made.goes_on(10)
        answering.set()
        for one in pair.hooks:
            hook.plane.stop(one.program)
        pair.start()
        unstamped = made.stamps.count([])
        eventually(lambda: made.goes_on(10) and made.stamps[-10:] == [[IN_ARM64]] * 10, "all pods are stamped again")
    assert unstamped >= 8, "nobody was there to stamp them"
    path = f"/api/v1/namespaces/{namespace}/pods/{held}"
    eventually(lambda: _is_let_go(json.loads(hook.client.raw("GET", path))), "the held pod goes where its image runs")
    assert _share(web.settled(WORKLOAD)) == pytest.approx(0.3, abs=0.05)
    web.delete_on_demand()
    assert _share(web.settled(WORKLOAD)) == pytest.approx(0.3, abs=0.05)
    web.scale(0)


def _held(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["name"]) if pod["spec"].get("schedulingGates") else ""


def _is_let_go(pod: dict[str, Any]) -> bool:
    return not pod["spec"].get("schedulingGates") and requirements(pod) == [IN_ARM64]


def _share(pods: list[dict[str, Any]]) -> float:
    """The share on demand of pods that are all stamped."""
    assert all(map(is_seated, pods))
    return len(on_demand(pods)) / len(pods)


def test_pods_are_stamped_again_when_what_is_served_had_ended(pair: Replicas) -> None:
    """As after a jump of the clock by a year: certificate and CA end under running programs, with nothing to overlap with. No creation fails."""
    hook = pair.hooks[0]
    clock = SystemClock()
    with leaderless(pair) as give_back:
        names = SecretNames.of_service(DEFAULT_SERVICE, HOME, addresses=["::1"])
        left = timedelta(seconds=4 * PATIENCE)
        ending = mint(names, clock.now() - timedelta(days=LEAF_DAYS) + left)
        store = SecretStore(hook.client, HOME, SECRET)
        current = store.get()
        assert current is not None
        store.replace(current, ending)
        patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": merge([ending.ca_pem])}]
        hook.client.patch(MUTATINGWEBHOOKS, CONFIGURATION_NAME, patch, kind="json")
        eventually(lambda: served(pair) == {ending.cert_pem}, "both serve what ends soon")
        with crowd(hook, 20) as made:
            eventually(lambda: [IN_ARM64] in made.stamps, "they are trusted with it", pause=0.01)
            eventually(lambda: not any(one.ready() for one in pair.hooks), "both see that it ended")
            assert served(pair) == {ending.cert_pem}
            pair.splitter.drop()  # a connection that stands is good for ever
            made.goes_on(5)
            eventually(lambda: made.goes_on(5) and made.stamps[-5:] == [[]] * 5, "nobody trusts them")
            give_back()
            eventually(lambda: made.goes_on(5) and made.stamps[-5:] == [[IN_ARM64]] * 5, "stamped again", seconds=40)
    eventually(lambda: all(one.ready() for one in pair.hooks), "both are ready")
    assert served(pair) == {hook.client.get(SECRETS, SECRET, HOME).data["tls.crt"]} != {ending.cert_pem}


@contextlib.contextmanager
def leaderless(pair: Replicas) -> Iterator[Callable[[], None]]:
    """Somebody else holds their Lease, so that nobody renews a certificate until the block calls what it gets."""
    hook = pair.hooks[0]

    def hold(holder: str, seconds: int) -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
        hook.client.patch(LEASES, LEADER_LEASE, {"spec": spec}, HOME)

    for one in pair.hooks:
        hook.plane.stop(one.program)
    hold("somebody-else", 3600)
    try:
        pair.start()
        yield lambda: hold("", 1)
    except BaseException:
        hold("", 1)
        raise
