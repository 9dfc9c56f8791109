"""State that the brokers of a cluster share outside their logs: who leads a shard, and which brokers are alive.

A coordinator that exists already stores it: `Coordinator` is the port, and each module beside it one backend.
"""
