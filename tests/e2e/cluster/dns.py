"""Ask the cluster's DNS from the machine itself, without a resolver library."""

import secrets
import socket
import struct

from tests.e2e.cluster.addresses import (
    API_SERVICE_ADDRESS,
    CLUSTER_DOMAIN,
    DNS_SERVICE_ADDRESS,
)

TIMEOUT_SECONDS = 1.0
_ADDRESS_RECORD, _INTERNET = 1, 1


def answers() -> bool:
    """Whether the DNS Service resolves the API server's Service to its address."""
    answer = _ask(f"kubernetes.default.svc.{CLUSTER_DOMAIN}")
    return answer.endswith(socket.inet_aton(API_SERVICE_ADDRESS))


def _ask(name: str) -> bytes:
    identity = secrets.token_bytes(2)
    header = identity + struct.pack(">5H", 0x0100, 1, 0, 0, 0)  # recursion desired, one question
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = labels + b"\0" + struct.pack(">2H", _ADDRESS_RECORD, _INTERNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(TIMEOUT_SECONDS)
        connection.connect((DNS_SERVICE_ADDRESS, 53))
        connection.send(header + question)
        answer = connection.recv(1024)
    return answer if answer.startswith(identity) else b""
