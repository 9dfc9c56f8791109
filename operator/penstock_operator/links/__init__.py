"""Links to the Kubernetes API and the brokers. They transport requests and decide nothing."""

from penstock_operator.links.brokers import Brokers, BrokerUnreachableError
from penstock_operator.links.kubernetes import ApiError, Kubernetes, connect_kubernetes

__all__ = ["ApiError", "BrokerUnreachableError", "Brokers", "Kubernetes", "connect_kubernetes"]
