"""The table of docs/benchmarks.md, measured: `make bench`. Broker and load share this machine."""
