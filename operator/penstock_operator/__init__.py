"""Penstock's Kubernetes operator: keeps brokers in the state that manifests describe."""
