"""Everything that looks up images, put together: `ImageService`. The only module that the rest of the webhook knows, and only where it is switched on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from provisioner.apis.stamping import Images, ImagesAsked
from provisioner.kube.client import Client
from provisioner.kube.config import connect
from provisioner.kube.events import Recorder
from provisioner.support.clock import Clock
from provisioner.values.message import Said
from webhook.images.credentials import Credentials
from webhook.images.lookups import Lookups
from webhook.images.marked import FactsOf, MarkedPods
from webhook.images.proofs import Proofs
from webhook.images.registry import Registry, client_context
from webhook.images.transport import Transport
from webhook.images.trust import Trust, TrustError, parse_accounts, parse_networks, parse_registries

T = TypeVar("T")
QPS, BURST = 100.0, 200
"""Of reads and patches of marked pods: a gated rollout waits for them."""
SURVEY_QPS, SURVEY_BURST = 50.0, 50
"""Of the survey of running images, which no pod waits for: 150,000 pods take two minutes."""
USER_AGENT = "dovetail-webhook-images"


@dataclass(frozen=True)
class ImageSettings:
    """The flags, checked.

    Attributes:
        trust: who may be asked.
        ca: PEM file of further authorities; None for the system's alone.
    """

    trust: Trust
    ca: str | None = None


def _in_flag(flag: str, error: object) -> str:
    return Said(f"{flag}: {error}")


def settings_of(registries: str, networks: str, accounts: str, ca: str | None) -> ImageSettings | None:
    """The flags; None where nothing may be asked, so that nothing is to be started.

    Raises:
        TrustError: one cannot be used; the message names it.
    """
    trust = Trust(
        _read("--image-registries", parse_registries, registries),
        _read("--image-registry-networks", parse_networks, networks),
        _read("--image-ecr-accounts", parse_accounts, accounts),
    )
    try:
        client_context(ca)
    except OSError as error:  # ssl.SSLError is one
        raise TrustError(_in_flag("--image-registry-ca", error)) from error
    return ImageSettings(trust, ca) if trust.registries or trust.accounts else None


def _read(flag: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except TrustError as error:
        raise TrustError(_in_flag(flag, error)) from error


class ImageService:
    """Answers what images were built for, and looks after the pods that could not be told at once.

    Args:
        kubeconfig: None where the program runs in the cluster.
        facts_of: the settings of a namespace.
    """

    def __init__(self, settings: ImageSettings, kubeconfig: str | None, facts_of: FactsOf, clock: Clock) -> None:
        connection = connect(kubeconfig, user_agent=USER_AGENT, pool_size=8, qps=QPS, burst=BURST, clock=clock)
        client = Client(connection, clock)
        trust = settings.trust
        transport = Transport(trust, client_context(settings.ca), clock.monotonic)
        self._recorder = Recorder(client, "dovetail-webhook", clock)
        beside = connect(
            kubeconfig, user_agent=USER_AGENT, pool_size=1, qps=SURVEY_QPS, burst=SURVEY_BURST, clock=clock
        )
        self._proofs = Proofs(Client(beside, clock))
        self._lookups = Lookups(
            Registry(transport, trust, clock.monotonic).look,
            trust.asks,
            Credentials(client, trust, clock).login,
            self._proofs.of,
            clock,
        )
        self.marked = MarkedPods(connection, client, facts_of, self._lookups, self._recorder, clock)

    def images(self, asked: ImagesAsked, *, keep: bool) -> Images:
        """What is known of the images of a pod; never waits."""
        known = self._lookups.images(asked, keep=keep)
        return Images(known.found, known.pending, may_gate=keep and self.marked.may_gate(asked.namespace))

    def start(self) -> None:
        """Start all threads; after a fork, never before."""
        self._lookups.start()
        self._proofs.poller.start()
        self.marked.start()

    def stop(self) -> None:
        self.marked.stop()
        self._proofs.poller.stop(0.0)
        self._lookups.stop()
        self._recorder.stop()
