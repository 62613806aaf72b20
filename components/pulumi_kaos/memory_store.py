"""MemoryStore: the memory service behind a stable endpoint, over PostgreSQL with pgvector."""

from collections.abc import Mapping
from typing import Any, cast

import pulumi
import pulumi_kubernetes as k8s

from pulumi_kaos import _pods as pods
from pulumi_kaos._arguments import ArgumentsError
from pulumi_kaos._memory_store_args import MemoryStoreArgs
from pulumi_kaos._memory_store_spec import MEM0_DIR, MemoryStoreSpec, memory_store_spec
from pulumi_kaos._store_status import StoreStatus, store_status

SERVICE_PORT = 8080
"""Port of the Service; part of the endpoint that clients of the KAOS MemoryStore resource know."""
_PORT_NAME = "http"
_METRICS_PORT_NAME = "metrics"
_USER = 10001
"""User of the image."""
_PRE_STOP_SECONDS = 5
"""Between the removal of a pod from the Service and its SIGTERM: the time that the nodes need to
hear of it. Without it a stopping pod refuses connections that are still sent to it."""
_SLACK_SECONDS = 10
"""For the process to leave after its drain: up to 5 s to close the database's connections, as much
again for a busy node. After that the kubelet kills it."""


class MemoryStore(pulumi.ComponentResource):
    """A memory store: the service, its stable endpoint, and a budget for disruptions.

    It creates a Deployment, a Service, a ServiceAccount and, from two replicas on, a
    PodDisruptionBudget. All arguments are checked before anything is created, in preview as in
    update. Only `storage.type: external` is available in this version.
    """

    endpoint: pulumi.Output[str]
    """URL inside the cluster: `http://memorystore-<name>.<namespace>.svc.cluster.local:8080`."""
    service_name: pulumi.Output[str]
    """Name of the Service."""
    deployment_name: pulumi.Output[str]
    """Name of the Deployment."""
    ready: pulumi.Output[bool]
    """Whether all replicas served when the last update ended; a snapshot."""
    phase: pulumi.Output[str]
    """Pending, Ready or Failed, as of the last update."""
    message: pulumi.Output[str]
    """The same in words."""

    def __init__(
        self, name: str, args: MemoryStoreArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Create the store.

        Raises:
            ArgumentsError: arguments break rules; nothing was created.
        """
        spec = memory_store_spec(name, cast("Mapping[str, Any]", args))
        super().__init__("kaos:index:MemoryStore", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = k8s.core.v1.ServiceAccount(
            name,
            metadata=_metadata(spec),
            # The service calls no API of Kubernetes in this version.
            automount_service_account_token=False,
            opts=child,
        )
        deployment = k8s.apps.v1.Deployment(
            name,
            metadata=_metadata(spec),
            spec=_deployment(spec, account.metadata.apply(lambda it: it.name or "")),
            opts=child,
        )
        service = k8s.core.v1.Service(
            name,
            metadata=_metadata(spec, annotations=pods.SKIP_AWAIT),
            spec=_service(spec),
            opts=child,
        )
        if spec.replicas >= 2:
            k8s.policy.v1.PodDisruptionBudget(
                name, metadata=_metadata(spec), spec=_budget(spec), opts=child
            )
        status = deployment.status.apply(lambda it: store_status(it, spec.replicas))
        self.endpoint = pulumi.Output.concat(
            f"http://{spec.full_name}.", spec.namespace, f".svc.cluster.local:{SERVICE_PORT}"
        )
        self.service_name = service.metadata.apply(lambda it: it.name or "")
        self.deployment_name = deployment.metadata.apply(lambda it: it.name or "")
        self.ready = status.apply(_ready)
        self.phase = status.apply(lambda it: it.phase)
        self.message = status.apply(lambda it: it.message)
        self.register_outputs(
            {
                "endpoint": self.endpoint,
                "serviceName": self.service_name,
                "deploymentName": self.deployment_name,
                "ready": self.ready,
                "phase": self.phase,
                "message": self.message,
            }
        )


def memory_store_problems(name: str, args: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the arguments, outputs apart; creates nothing.

    For programs with several components, which want to refuse all faults before the first one.
    """
    try:
        memory_store_spec(name, args)
    except ArgumentsError as error:
        return error.problems
    return []


def _ready(status: StoreStatus) -> bool:
    return status.phase == "Ready"


def _metadata(
    spec: MemoryStoreSpec, annotations: Mapping[str, str] | None = None
) -> k8s.meta.v1.ObjectMetaArgs:
    labels = pods.labels("memorystore", spec.name)
    return pods.metadata(spec.namespace, labels, name=spec.full_name, annotations=annotations)


def _service(spec: MemoryStoreSpec) -> k8s.core.v1.ServiceSpecArgs:
    port = k8s.core.v1.ServicePortArgs(
        name=_PORT_NAME, port=SERVICE_PORT, target_port=_PORT_NAME, protocol="TCP"
    )
    return k8s.core.v1.ServiceSpecArgs(
        type="ClusterIP", selector=pods.selector("memorystore", spec.name), ports=[port]
    )


def _budget(spec: MemoryStoreSpec) -> k8s.policy.v1.PodDisruptionBudgetSpecArgs:
    return k8s.policy.v1.PodDisruptionBudgetSpecArgs(
        # Only where two replicas are guaranteed: at one it would block every drain for ever.
        min_available=1,
        # A pod that is not ready protects nothing; without this it could still block a drain.
        unhealthy_pod_eviction_policy="AlwaysAllow",
        selector=k8s.meta.v1.LabelSelectorArgs(
            match_labels=pods.selector("memorystore", spec.name)
        ),
    )


def _deployment(
    spec: MemoryStoreSpec, account: pulumi.Input[str]
) -> k8s.apps.v1.DeploymentSpecArgs:
    selector = pods.selector("memorystore", spec.name)
    token = spec.rollout_token
    annotations = {f"{pods.ANNOTATIONS}/rollout-token": token} if token is not None else None
    return k8s.apps.v1.DeploymentSpecArgs(
        replicas=spec.replicas,
        selector=k8s.meta.v1.LabelSelectorArgs(match_labels=selector),
        # A new pod serves before an old one leaves: an update costs no capacity.
        strategy=k8s.apps.v1.DeploymentStrategyArgs(
            type="RollingUpdate",
            rolling_update=k8s.apps.v1.RollingUpdateDeploymentArgs(max_unavailable=0, max_surge=1),
        ),
        template=k8s.core.v1.PodTemplateSpecArgs(
            metadata=k8s.meta.v1.ObjectMetaArgs(
                labels=pods.labels("memorystore", spec.name), annotations=annotations
            ),
            spec=_pod(spec, account),
        ),
    )


def _pod(spec: MemoryStoreSpec, account: pulumi.Input[str]) -> k8s.core.v1.PodSpecArgs:
    return k8s.core.v1.PodSpecArgs(
        service_account_name=account,
        automount_service_account_token=False,
        # A Service called `kaos-memory` would inject KAOS_MEMORY_PORT=tcp://...
        enable_service_links=False,
        termination_grace_period_seconds=(
            _PRE_STOP_SECONDS + spec.settings.server.drain_seconds + _SLACK_SECONDS
        ),
        security_context=pods.pod_security(_USER),
        topology_spread_constraints=[
            _spread(spec, key) for key in ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
        ],
        containers=[_container(spec)],
        volumes=[pods.scratch("tmp", "64Mi"), pods.scratch("mem0", "64Mi")],
    )


def _spread(spec: MemoryStoreSpec, key: str) -> k8s.core.v1.TopologySpreadConstraintArgs:
    return k8s.core.v1.TopologySpreadConstraintArgs(
        max_skew=1,
        topology_key=key,
        # A wish, not a condition: a cluster of one node must still run two replicas.
        when_unsatisfiable="ScheduleAnyway",
        label_selector=k8s.meta.v1.LabelSelectorArgs(
            match_labels=pods.selector("memorystore", spec.name)
        ),
        # Counts the pods of the new version alone, else an update ends up on one node.
        match_label_keys=["pod-template-hash"],
    )


def _container(spec: MemoryStoreSpec) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="memory",
        image=spec.image,
        image_pull_policy="IfNotPresent",
        env=[variable.manifest() for variable in spec.environment],
        ports=_ports(spec),
        resources=pods.requirements(spec.requests, spec.limits),
        security_context=pods.container_security(),
        volume_mounts=[pods.mount("tmp", "/tmp"), pods.mount("mem0", MEM0_DIR)],  # noqa: S108
        lifecycle=k8s.core.v1.LifecycleArgs(
            pre_stop=k8s.core.v1.LifecycleHandlerArgs(
                sleep=k8s.core.v1.SleepActionArgs(seconds=_PRE_STOP_SECONDS)
            )
        ),
        # Start takes 2 to 4 s, most of it imports; a busy node may need ten times that. Until it
        # is over the liveness probe waits.
        startup_probe=_probe("/healthz", period=2, failures=30, timeout=2),
        # Touches no dependency, so that a lost database never restarts pods. Three misses: a
        # process that only is busy gets half a minute.
        liveness_probe=_probe("/healthz", period=10, failures=3, timeout=3),
        # Asks the stores within the service's own short timeout. Two misses: one slow answer of
        # the database empties no Service; after ten seconds traffic goes elsewhere.
        readiness_probe=_probe("/readyz", period=5, failures=2, timeout=4),
    )


def _ports(spec: MemoryStoreSpec) -> list[k8s.core.v1.ContainerPortArgs]:
    """Return the pod's ports. The Service has the first only: metrics are asked of each pod."""
    numbers = {_PORT_NAME: spec.settings.server.port}
    if spec.settings.telemetry.metrics_port:
        numbers[_METRICS_PORT_NAME] = spec.settings.telemetry.metrics_port
    return [
        k8s.core.v1.ContainerPortArgs(name=name, container_port=number, protocol="TCP")
        for name, number in numbers.items()
    ]


def _probe(path: str, *, period: int, failures: int, timeout: int) -> k8s.core.v1.ProbeArgs:
    return k8s.core.v1.ProbeArgs(
        http_get=k8s.core.v1.HTTPGetActionArgs(path=path, port=_PORT_NAME),
        period_seconds=period,
        failure_threshold=failures,
        timeout_seconds=timeout,
    )
