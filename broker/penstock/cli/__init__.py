"""The `penstock` command.

It speaks to a broker through the client; only `serve` and `log` enter the broker's own rooms.
"""
