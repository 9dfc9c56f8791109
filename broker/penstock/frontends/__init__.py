"""The front ends, one package a protocol. They translate requests to verbs of `services` and do not know each other."""
