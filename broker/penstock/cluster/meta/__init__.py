"""The metadata of a cluster: virtual hosts, users, permissions, topologies and places of shards, equal on all brokers.

The leader of the `meta` shard decides commands by the rules of one broker and commits what changed to the shard's log;
every broker applies the committed changes in their order, to its memory and to the files that one broker would have.
"""
