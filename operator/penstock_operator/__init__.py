"""Penstock's Kubernetes operator: what the manifests say is what the brokers do, for ever."""
