"""Imports the data of other brokers into a data directory."""
