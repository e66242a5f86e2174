"""Whether pods that move are sized by VerticalPodAutoscalers: only where that is wanted, the API server serves them, and their watch is current."""

from typing import Final

from provisioner.runtime.base import Base
from provisioner.runtime.controller import Controller
from provisioner.runtime.late_watch import LateWatch
from provisioner.state.knowledge import KindKnowledge
from provisioner.support import logs
from provisioner.values.message import Said

NOT_SERVED: Final = Said("the API server does not serve verticalpodautoscalers of autoscaling.k8s.io/v1")
_log = logs.get_logger(__name__)


def autoscaler_controllers(base: Base) -> list[Controller]:
    """Has them watched, and tells the state and the log what is known of them; none where nothing is to be predicted."""

    def told(known: KindKnowledge, problem: str) -> None:
        base.cluster.predictions_known(known)
        if known is KindKnowledge.READ:
            _log.info("Pods that move are sized by VerticalPodAutoscalers")
            return
        reason = problem or NOT_SERVED
        _log.warning("Pods that move are sized by their requests, not by VerticalPodAutoscalers", reason=reason)

    if not base.options.vpa_predictions:
        return []
    watch = LateWatch("vpa.prediction", base.caches, base.client, base.clock, (base.caches.autoscalers,), told)
    return [Controller(runner=watch.poller)]
