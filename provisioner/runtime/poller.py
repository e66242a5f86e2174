"""Polls the API server or a cloud: what these answer is said without a trace."""

from provisioner.cloudprovider.errors import CloudError
from provisioner.kube.errors import ApiError
from provisioner.support import poller


class ApiPoller(poller.Poller):
    """As in `support`, and ApiError and CloudError are always expected."""

    EXPECTED = (ApiError, CloudError)
