"""What every pod and object of these components has in common.

Containers satisfy Pod Security "restricted", write to named scratch folders only, and tell the
scheduler what they need.
"""

from collections.abc import Mapping

import pulumi
import pulumi_kubernetes as k8s

SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
"""For Services, whose wait needs ready pods and 10 s more, and for volume claims, which some
classes bind only when a pod uses them. The workload's own wait covers both."""
ANNOTATIONS = "memory.kaos.tools"
"""Prefix of our annotations and labels."""


def labels(kind: str, name: str) -> dict[str, str]:
    """Return the recommended labels of Kubernetes; name and instance also select the pods."""
    return {
        **selector(kind, name),
        "app.kubernetes.io/part-of": "kaos-memory",
        "app.kubernetes.io/managed-by": "pulumi",
    }


def selector(kind: str, name: str) -> dict[str, str]:
    """Return the labels that select the pods. They can never change without a replacement."""
    return {"app.kubernetes.io/name": kind, "app.kubernetes.io/instance": name}


def metadata(
    namespace: pulumi.Input[str],
    labels: Mapping[str, str],
    *,
    name: str | None = None,
    annotations: Mapping[str, str] | None = None,
) -> k8s.meta.v1.ObjectMetaArgs:
    """Return metadata. Without a name Pulumi makes a new one for each content."""
    return k8s.meta.v1.ObjectMetaArgs(
        name=name, namespace=namespace, labels=labels, annotations=annotations
    )


def pod_security(user: int) -> k8s.core.v1.PodSecurityContextArgs:
    """Run as this user and group, which also owns the pod's volumes."""
    return k8s.core.v1.PodSecurityContextArgs(
        run_as_non_root=True,
        run_as_user=user,
        run_as_group=user,
        fs_group=user,
        # Else each start walks the whole volume and widens modes that PostgreSQL insists on.
        fs_group_change_policy="OnRootMismatch",
        seccomp_profile=k8s.core.v1.SeccompProfileArgs(type="RuntimeDefault"),
    )


def container_security() -> k8s.core.v1.SecurityContextArgs:
    """Take every privilege away, writing to the image's own files included."""
    return k8s.core.v1.SecurityContextArgs(
        allow_privilege_escalation=False,
        read_only_root_filesystem=True,
        capabilities=k8s.core.v1.CapabilitiesArgs(drop=["ALL"]),
    )


def requirements(
    requests: Mapping[str, str], limits: Mapping[str, str]
) -> k8s.core.v1.ResourceRequirementsArgs:
    """Return requests and limits. A CPU limit is left out by default: it only adds waiting."""
    return k8s.core.v1.ResourceRequirementsArgs(requests=dict(requests), limits=dict(limits))


def scratch(name: str, size: str, *, medium: str | None = None) -> k8s.core.v1.VolumeArgs:
    """Return an empty folder that lives as long as the pod and cannot fill the node's disk."""
    empty = k8s.core.v1.EmptyDirVolumeSourceArgs(size_limit=size, medium=medium)
    return k8s.core.v1.VolumeArgs(name=name, empty_dir=empty)


def mount(name: str, path: str, *, read_only: bool | None = None) -> k8s.core.v1.VolumeMountArgs:
    """Mount a volume of the pod."""
    return k8s.core.v1.VolumeMountArgs(name=name, mount_path=path, read_only=read_only)
