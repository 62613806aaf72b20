"""Certificates and kubeconfigs, made anew for each cluster."""

import json
from pathlib import Path

from tests.e2e.cluster.addresses import (
    API_SERVER,
    API_SERVICE_ADDRESS,
    CLUSTER_DOMAIN,
    NODE_ADDRESS,
    node_name,
)
from tests.e2e.cluster.commands import run
from tests.e2e.cluster.paths import STATE

PKI = STATE / "pki"
CERTIFICATE_AUTHORITY = PKI / "ca.crt"
ADMIN_KUBECONFIG = STATE / "admin.kubeconfig"
VALID_DAYS = "365"

# Without a config of our own, openssl marks every self-made certificate as an authority.
_OPENSSL_CONFIG = """\
[req]
distinguished_name = subject
[subject]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
[leaf]
basicConstraints = critical,CA:FALSE
extendedKeyUsage = serverAuth,clientAuth
"""


def create() -> None:
    """Write the authority, the ServiceAccount keys, all certificates and all kubeconfigs."""
    PKI.mkdir(parents=True, mode=0o700)
    (PKI / "openssl.cnf").write_text(_OPENSSL_CONFIG)
    # RSA here, so that ServiceAccount tokens are RS256 as on the clusters that people use.
    run("openssl", "genrsa", "-out", PKI / "sa.key", "2048")
    run("openssl", "rsa", "-in", PKI / "sa.key", "-pubout", "-out", PKI / "sa.pub")
    _certificate("ca", "/CN=kaos-cluster", "authority")
    api_names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    _issue(
        "apiserver",
        "/CN=kube-apiserver",
        *(f"DNS:{name}" for name in api_names),
        f"DNS:kubernetes.default.svc.{CLUSTER_DOMAIN}",
        f"IP:{API_SERVICE_ADDRESS}",
        f"IP:{NODE_ADDRESS}",
    )
    node = node_name()
    _issue(
        "kubelet",
        f"/O=system:nodes/CN=system:node:{node}",
        f"DNS:{node}",
        f"IP:{NODE_ADDRESS}",
    )
    _issue("apiserver-kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
    _issue("admin", "/O=system:masters/CN=admin")
    _issue("controller-manager", "/CN=system:kube-controller-manager")
    _issue("scheduler", "/CN=system:kube-scheduler")
    _issue("proxy", "/CN=system:kube-proxy")
    for user in ("admin", "controller-manager", "scheduler", "kubelet", "proxy"):
        _write_kubeconfig(user)


def kubeconfig(user: str) -> Path:
    """Return where the kubeconfig of a component or of the admin is."""
    return STATE / f"{user}.kubeconfig"


def _issue(name: str, subject: str, *alternative_names: str) -> None:
    names = ",".join(alternative_names or (f"DNS:{name}",))
    extra = ("-addext", f"subjectAltName={names}")
    authority = ("-CA", str(CERTIFICATE_AUTHORITY), "-CAkey", str(PKI / "ca.key"))
    _certificate(name, subject, "leaf", *authority, *extra)


def _certificate(name: str, subject: str, extensions: str, *arguments: str) -> None:
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    files = ("-keyout", PKI / f"{name}.key", "-out", PKI / f"{name}.crt")
    config = ("-config", PKI / "openssl.cnf", "-extensions", extensions)
    request = ("openssl", "req", "-x509", "-days", VALID_DAYS, "-subj", subject)
    run(*request, *curve, *files, *config, *arguments)


def _write_kubeconfig(user: str) -> None:
    # Kubeconfig is YAML, and JSON is YAML.
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "kaos-e2e",
                "cluster": {
                    "server": API_SERVER,
                    "certificate-authority": str(CERTIFICATE_AUTHORITY),
                },
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate": str(PKI / f"{user}.crt"),
                    "client-key": str(PKI / f"{user}.key"),
                },
            }
        ],
        "contexts": [{"name": "kaos-e2e", "context": {"cluster": "kaos-e2e", "user": user}}],
        "current-context": "kaos-e2e",
    }
    path = kubeconfig(user)
    path.touch(mode=0o600)
    path.write_text(json.dumps(content, indent=2))
