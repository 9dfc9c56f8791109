"""Benchmarks for docs/benchmarks.md: `make bench`. Broker and load share this machine."""
