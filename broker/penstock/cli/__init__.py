"""The `penstock` command.

It speaks to a broker through the client; only `serve`, `log`, `restore` and `import` import the broker's own packages.
"""
