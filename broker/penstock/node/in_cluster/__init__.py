"""A broker of a cluster: its membership, and users and virtual hosts as the cluster's metadata has them.

A broker without a cluster imports none of it.
"""
