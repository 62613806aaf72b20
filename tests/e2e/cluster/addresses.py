"""Every address, port and name that the cluster takes on the machine, in one place."""

import socket

BRIDGE = "kaosnode0"
"""Carries the node's address: it must not be a loopback one, and a bridge is what every kernel has.
Its presence also marks this machine as one with a cluster (or remains of one) of ours."""
POD_BRIDGE = "kaoscni0"
NODE_ADDRESS = "10.200.0.1"
API_SERVER = f"https://{NODE_ADDRESS}:6443"

POD_RANGE = "10.244.0.0/24"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"

ETCD_CLIENT = "http://127.0.0.1:12379"
"""Not etcd's own ports: where systemd runs, Debian's package starts an etcd of its own on those."""
ETCD_PEER = "http://127.0.0.1:12380"

NETWORK = "kaos-cluster"
CGROUP = "kaos-cluster"


def node_name() -> str:
    """Return the node's name in the cluster."""
    return socket.gethostname().lower()
