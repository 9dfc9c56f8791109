"""Desired state: pure functions from specs and facts to manifests, calls and statuses. No clock, no network."""

from penstock_operator.desired.children import children
from penstock_operator.desired.cluster_plan import Plan, plan
from penstock_operator.desired.naming import Owner

__all__ = ["Owner", "Plan", "children", "plan"]
