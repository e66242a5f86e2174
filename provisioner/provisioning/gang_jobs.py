"""How many pods a gang of a Job needs at once, where its annotations do not say it: as many as the Job runs at the same time.

Each such Job is read by itself, when its first pod is seen, and again while its gang waits for more pods: somebody may lower the parallelism. Nobody
else's Jobs are read.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from provisioner.apis import names
from provisioner.apis.gangs import group_of, minimum_of, told
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Forbidden
from provisioner.kube.resources import JOBS
from provisioner.runtime.changes import PodChanged
from provisioner.runtime.controller import Controller
from provisioner.runtime.poller import ApiPoller
from provisioner.state.cluster import Cluster
from provisioner.state.groups import GangJob
from provisioner.support import logs
from provisioner.support.clock import Clock

MOST_READ: Final = 50
"""Jobs that are read in one round; each namespace has its turn."""
AGAIN_SECONDS: Final = 30.0
"""After which the Job of a gang that waits is read again."""
PAUSE_SECONDS: Final = 1.0
_ABOUT_THE_SERVER: Final = frozenset((0, 401, 408, 429, 502, 503, 504))
_ABOUT_THE_REQUEST: Final = frozenset(range(300, 500)) - _ABOUT_THE_SERVER
_log = logs.get_logger(__name__)


class GangJobs:
    """Reads the Jobs for which gangs wait. At most `MOST_READ` requests in a round, and rounds at least `PAUSE_SECONDS` apart."""

    def __init__(self, cluster: Cluster, client: Client, clock: Clock) -> None:
        self._cluster, self._client, self._clock = cluster, client, clock
        self._read_at: dict[str, float] = {}  # by key of a gang that waits
        self._round_at = float("-inf")
        self.poller = ApiPoller("gang-jobs", self._poll)

    def controller(self) -> Controller:
        """Its row in the list of controllers."""
        return Controller(runner=self.poller, watches={PodChanged: self._heard})

    def _heard(self, change: PodChanged) -> None:
        pod = change.new
        if change.old is None and pod is not None and names.GANG in pod.annotations and not pod.group:
            key = group_of(pod)
            if key and minimum_of(key) == 0 and key not in self._read_at:
                self.poller.wake()

    def _poll(self) -> float | None:
        now = self._clock.monotonic()
        if (left := self._round_at + PAUSE_SECONDS - now) > 0:
            return left
        self._round_at = now
        jobs = self._cluster.gang_jobs()
        self._read_at = {job.key: self._read_at[job.key] for job in jobs if job.key in self._read_at}
        due = [job for job in jobs if self._read_at.get(job.key, -AGAIN_SECONDS) + AGAIN_SECONDS <= now]
        failed: ApiError | None = None
        for job in in_turn(due)[:MOST_READ]:
            try:
                minimum = self._minimum_of(job)
            except ApiError as error:
                failed = error
                if error.status in _ABOUT_THE_SERVER:
                    break  # no other would be answered either
                continue
            self._read_at[job.key] = now
            self._cluster.gang_job_read(job.key, minimum)
        if failed is not None:
            raise failed
        if not jobs:
            return None
        return PAUSE_SECONDS if len(due) > MOST_READ else AGAIN_SECONDS

    def _minimum_of(self, job: GangJob) -> int:
        """What the Job says; 0 where nobody can tell.

        Raises:
            ApiError: the API server did not answer; the gang waits until it does.
        """
        try:
            found = self._client.find(JOBS, job.name, job.namespace)
        except Forbidden as error:
            _log.warning(
                "The role of the provisioner may not read a Job, so the pods of its gang are planned on their own; allow it, or annotate the pods "
                "with dovetail.dev/gang-minimum",
                gang=told(job.key),
                job=f"{job.namespace}/{job.name}",
                error=str(error),
            )
            return 0
        except ApiError as error:
            if error.status in _ABOUT_THE_REQUEST:  # whoever makes a pod names its controller as they like
                return 0
            raise
        return job.says(found)


def in_turn(jobs: Iterable[GangJob]) -> list[GangJob]:
    """The first of each namespace, then the second of each, and so on. Pure."""
    turns: Counter[str] = Counter()
    ranked = []
    for number, job in enumerate(jobs):
        turns[job.namespace] += 1
        ranked.append((turns[job.namespace], number, job))
    return [job for *_, job in sorted(ranked)]
