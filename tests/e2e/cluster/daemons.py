"""What runs: the command line of each daemon and the configuration files that it reads.

Components that offer a port of no use here get none; the others bind to the cluster's own bridge
or to loopback.
"""

import json

from tests.e2e.cluster import addresses, pki, requirements
from tests.e2e.cluster.paths import STATE
from tests.e2e.cluster.processes import Daemon
from tests.e2e.cluster.tools import KUBE_ROUTER, KUBERNETES

CONTAINERD_SOCKET = STATE / "containerd.sock"
PAUSE_IMAGE = "localhost/pause:test"

_CONTAINERD_CONFIG = f"""\
version = 2
root = "{STATE}/containerd/root"
state = "{STATE}/containerd/state"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{STATE}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # So that every mount of ours is below one folder.
  netns_mounts_under_state_dir = true
  # A machine that is itself a container may not lower the score.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{requirements.CNI_PLUGINS}"
    conf_dir = "{STATE}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "{STATE}/containerd/runc"
        SystemdCgroup = false
"""


def write_configuration() -> None:
    """Write the files that containerd, its network plugin and the kubelet read."""
    (STATE / "cni").mkdir()
    (STATE / "containerd.toml").write_text(_CONTAINERD_CONFIG)
    (STATE / "cni" / "10-bridge.conflist").write_text(json.dumps(_network(), indent=2))
    (STATE / "kubelet.yaml").write_text(json.dumps(_kubelet_configuration(), indent=2))
    # Pods ask the cluster's DNS only; whatever resolves names for the machine is not theirs.
    (STATE / "resolv.conf").write_text("nameserver 127.0.0.1\n")


def etcd() -> Daemon:
    """The store. Its data dies with the cluster, so it does not wait for the disk."""
    return Daemon(
        "etcd",
        (
            "/usr/bin/etcd",
            f"--data-dir={STATE / 'etcd'}",
            f"--listen-client-urls={addresses.ETCD_CLIENT}",
            f"--advertise-client-urls={addresses.ETCD_CLIENT}",
            f"--listen-peer-urls={addresses.ETCD_PEER}",
            f"--initial-advertise-peer-urls={addresses.ETCD_PEER}",
            f"--initial-cluster=default={addresses.ETCD_PEER}",
            "--unsafe-no-fsync",
        ),
    )


def api_server() -> Daemon:
    """The API server, with RBAC and token audiences as on a production cluster."""
    return _kubernetes(
        "kube-apiserver",
        f"--etcd-servers={addresses.ETCD_CLIENT}",
        f"--service-cluster-ip-range={addresses.SERVICE_RANGE}",
        f"--bind-address={addresses.NODE_ADDRESS}",
        f"--advertise-address={addresses.NODE_ADDRESS}",
        f"--tls-cert-file={pki.PKI / 'apiserver.crt'}",
        f"--tls-private-key-file={pki.PKI / 'apiserver.key'}",
        f"--client-ca-file={pki.CERTIFICATE_AUTHORITY}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-account-issuer=https://kubernetes.default.svc.{addresses.CLUSTER_DOMAIN}",
        f"--service-account-key-file={pki.PKI / 'sa.pub'}",
        f"--service-account-signing-key-file={pki.PKI / 'sa.key'}",
        f"--kubelet-client-certificate={pki.PKI / 'apiserver-kubelet-client.crt'}",
        # Not the host name, which resolves to loopback here.
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-key={pki.PKI / 'apiserver-kubelet-client.key'}",
    )


def containerd() -> Daemon:
    """The container runtime, with state and socket of its own."""
    return Daemon("containerd", ("/usr/bin/containerd", "--config", f"{STATE}/containerd.toml"))


def controllers() -> tuple[Daemon, ...]:
    """What works through the API server as soon as that is ready."""
    manager, scheduler = pki.kubeconfig("controller-manager"), pki.kubeconfig("scheduler")
    node = f"--hostname-override={addresses.node_name()}"
    return (
        _kubernetes(
            "kube-controller-manager",
            f"--kubeconfig={manager}",
            "--secure-port=0",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={pki.PKI / 'sa.key'}",
            f"--root-ca-file={pki.CERTIFICATE_AUTHORITY}",
            f"--flex-volume-plugin-dir={STATE}/volume-plugins",
        ),
        _kubernetes(
            "kube-scheduler", f"--kubeconfig={scheduler}", "--secure-port=0", "--leader-elect=false"
        ),
        _kubernetes(
            "kubelet",
            f"--config={STATE}/kubelet.yaml",
            f"--kubeconfig={pki.kubeconfig('kubelet')}",
            f"--root-dir={STATE}/kubelet",
            f"--node-ip={addresses.NODE_ADDRESS}",
            node,
        ),
        _kubernetes(
            "kube-proxy",
            f"--kubeconfig={pki.kubeconfig('proxy')}",
            "--proxy-mode=iptables",
            # A new endpoint counts at once, not after a second of collecting changes.
            "--iptables-min-sync-period=100ms",
            f"--cluster-cidr={addresses.POD_RANGE}",
            f"--nodeport-addresses={addresses.NODE_ADDRESS}/32",
            "--iptables-localhost-nodeports=false",
            "--healthz-bind-address=127.0.0.1:10256",
            "--metrics-bind-address=127.0.0.1:10249",
            # The machine's own connection tracking limits stay as they are.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
            node,
        ),
    )


def policy_enforcer() -> Daemon:
    """Enforcer of NetworkPolicy. It ends at once where its node is not registered yet."""
    return Daemon(
        "kube-router",
        (
            str(KUBE_ROUTER.binary("kube-router")),
            f"--kubeconfig={pki.ADMIN_KUBECONFIG}",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--run-loadbalancer=false",
            "--health-port=0",
            "--metrics-port=0",
            f"--hostname-override={addresses.node_name()}",
        ),
    )


def names() -> tuple[str, ...]:
    """Return all daemons' names, in the order of their start."""
    all_daemons = (etcd(), containerd(), api_server(), *controllers(), policy_enforcer())
    return tuple(daemon.name for daemon in all_daemons)


def _kubernetes(name: str, *flags: str) -> Daemon:
    return Daemon(name, (str(KUBERNETES.binary(name)), *flags))


def _network() -> dict[str, object]:
    # No masquerading: pods talk to pods, Services and the node, and no packet leaves the machine
    # with a pod's address that could be answered. One kind of iptables chain less to clean, too.
    bridge = {
        "type": "bridge",
        "bridge": addresses.POD_BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": addresses.POD_RANGE}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(STATE / "ipam"),
        },
    }
    return {"cniVersion": "1.0.0", "name": addresses.NETWORK, "plugins": [bridge]}


def _kubelet_configuration() -> dict[str, object]:
    never = {
        "nodefs.available": "0%",
        "imagefs.available": "0%",
        "nodefs.inodesFree": "0%",
        "imagefs.inodesFree": "0%",
    }
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.NODE_ADDRESS,
        "healthzPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.CERTIFICATE_AUTHORITY)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki.PKI / "kubelet.crt"),
        "tlsPrivateKeyFile": str(pki.PKI / "kubelet.key"),
        "clusterDNS": [addresses.DNS_SERVICE_ADDRESS],
        "clusterDomain": addresses.CLUSTER_DOMAIN,
        "resolvConf": f"{STATE}/resolv.conf",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        # Every process of every pod is below one cgroup, which is how `down` finds them all.
        "cgroupRoot": f"/{addresses.CGROUP}",
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "podLogsDir": f"{STATE}/pod-logs",
        "volumePluginDir": f"{STATE}/volume-plugins",
        # Images are loaded by hand and cannot be pulled again; a full disk is the tests' to notice.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", **never},
        "localStorageCapacityIsolation": False,
    }
