"""The gRPC contract in Python: message classes and stubs generated from proto/penstock/v1, and the descriptors.

Written by `make proto`, never by hand. Importing this package imports none of them: the broker wants the messages
alone, without grpc.
"""
