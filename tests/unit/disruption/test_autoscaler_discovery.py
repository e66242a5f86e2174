"""When pods that move are sized by VerticalPodAutoscalers: only where that is wanted, and while their watch is current."""

import pytest

from provisioner.disruption.autoscaler_discovery import NOT_SERVED, autoscaler_controllers
from provisioner.kube.errors import error_from
from provisioner.kube.resources import AUTOSCALERS
from provisioner.state.knowledge import KindKnowledge
from provisioner.support.poller import Poller
from tests.support.latewatches import NOT_FOUND, LateKind, served


def test_where_it_is_not_wanted_nobody_asks() -> None:
    assert autoscaler_controllers(LateKind(AUTOSCALERS).base) == []


def test_they_are_used_while_they_are_known_and_the_log_tells_why_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    one = LateKind(AUTOSCALERS, NOT_FOUND, served(AUTOSCALERS), vpa_predictions=True)
    (controller,) = autoscaler_controllers(one.base)
    poller, seen = controller.runner, list[KindKnowledge]()
    assert isinstance(poller, Poller)
    poller.once()
    one.clock.advance(60.0)
    one.watch.synced.set()
    for one.watch.error in (None, error_from(403, b""), None):
        poller.once()
        seen.append(one.world.cluster.prediction_knowledge())
    assert seen == [KindKnowledge.READ, KindKnowledge.UNREADABLE, KindKnowledge.READ]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING", "INFO"]
    reasons = [str(vars(record)) for record in caplog.records]
    assert NOT_SERVED in reasons[0]
    assert str(AUTOSCALERS) in reasons[2]
