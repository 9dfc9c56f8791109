"""The `penstock` command.

It speaks to a broker through the client; only `serve`, `log`, `restore` and `import` enter the broker's own rooms.
"""
