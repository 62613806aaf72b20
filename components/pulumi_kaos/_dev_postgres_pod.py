"""The pod of DevPostgres, and how it makes its role and database at the first start."""

import pulumi
import pulumi_kubernetes as k8s

from pulumi_kaos import _pods as pods

KIND = "pgvector"
NAME = "kaos-memory-pgvector"
"""Well-known name of the Secret with the DSN, and of all else."""
PORT = 5432
ROLE = "kaos"
"""The role that stores connect as, and its database."""
SUPERUSER_ENTRY = "superuser-password"
PASSWORD_ENTRY = "password"  # noqa: S105 - the entry's name
INIT_FILE = "10-kaos.sql"

INIT_SQL = f"""\
-- Run once by the image's entrypoint, as the superuser, when the volume is empty.
-- A failing statement must not show its text, which holds the password, in the log.
SET log_min_error_statement = panic;
\\getenv password KAOS_ROLE_PASSWORD
CREATE ROLE {ROLE} LOGIN CREATEROLE NOSUPERUSER NOBYPASSRLS PASSWORD :'password';
CREATE DATABASE {ROLE} OWNER {ROLE};
\\connect {ROLE}
CREATE EXTENSION IF NOT EXISTS vector;
"""
"""SQL for psql 15 or later. The password comes from the pod's environment, never from here.
CREATEROLE: the service makes the roles that row-level security runs under."""

_USER = 999
"""User `postgres` of the public image."""
_MOUNT = "/var/lib/postgresql"
_DATA = f"{_MOUNT}/pgdata"
"""Below the mount: a volume's root may hold `lost+found` and has modes of its own."""
_PORT_NAME = "postgresql"


def service() -> k8s.core.v1.ServiceSpecArgs:
    """Return the Service that the DSN names."""
    port = k8s.core.v1.ServicePortArgs(
        name=_PORT_NAME, port=PORT, target_port=_PORT_NAME, protocol="TCP"
    )
    return k8s.core.v1.ServiceSpecArgs(
        type="ClusterIP", selector=pods.selector(KIND, NAME), ports=[port]
    )


def stateful_set(
    *,
    image: str,
    claim: pulumi.Input[str],
    logins: pulumi.Input[str],
    scripts: pulumi.Input[str],
    resources: k8s.core.v1.ResourceRequirementsArgs,
) -> k8s.apps.v1.StatefulSetSpecArgs:
    """Return the workload: a StatefulSet, which never runs two pods on one volume."""
    return k8s.apps.v1.StatefulSetSpecArgs(
        replicas=1,
        service_name=NAME,
        # In the default order a pod that never became ready blocks the update that mends it.
        pod_management_policy="Parallel",
        selector=k8s.meta.v1.LabelSelectorArgs(match_labels=pods.selector(KIND, NAME)),
        template=k8s.core.v1.PodTemplateSpecArgs(
            metadata=k8s.meta.v1.ObjectMetaArgs(labels=pods.labels(KIND, NAME)),
            spec=k8s.core.v1.PodSpecArgs(
                automount_service_account_token=False,
                enable_service_links=False,
                # PostgreSQL writes a checkpoint before it leaves.
                termination_grace_period_seconds=60,
                security_context=pods.pod_security(_USER),
                containers=[_container(image, logins, resources)],
                volumes=_volumes(claim, scripts),
            ),
        ),
    )


def _container(
    image: str, logins: pulumi.Input[str], resources: k8s.core.v1.ResourceRequirementsArgs
) -> k8s.core.v1.ContainerArgs:
    return k8s.core.v1.ContainerArgs(
        name="postgres",
        image=image,
        image_pull_policy="IfNotPresent",
        env=[
            k8s.core.v1.EnvVarArgs(name="PGDATA", value=_DATA),
            k8s.core.v1.EnvVarArgs(name="POSTGRES_USER", value="postgres"),
            _login("POSTGRES_PASSWORD", logins, SUPERUSER_ENTRY),
            _login("KAOS_ROLE_PASSWORD", logins, PASSWORD_ENTRY),
        ],
        ports=[k8s.core.v1.ContainerPortArgs(name=_PORT_NAME, container_port=PORT, protocol="TCP")],
        resources=resources,
        security_context=pods.container_security(),
        volume_mounts=[
            pods.mount("data", _MOUNT),
            pods.mount("init", "/docker-entrypoint-initdb.d", read_only=True),
            pods.mount("run", "/var/run/postgresql"),
            pods.mount("tmp", "/tmp"),  # noqa: S108 - a mount of the pod
            pods.mount("shm", "/dev/shm"),  # noqa: S108 - a mount of the pod
        ],
        # The first start creates the database: seconds, on a slow volume a minute or two. The
        # kubelet must not interrupt it, for a half-made database is not made again.
        startup_probe=_probe(period=2, failures=90),
        liveness_probe=_probe(period=10, failures=6),
        readiness_probe=_probe(period=5, failures=2),
    )


def _login(variable: str, logins: pulumi.Input[str], entry: str) -> k8s.core.v1.EnvVarArgs:
    reference = k8s.core.v1.SecretKeySelectorArgs(name=logins, key=entry)
    source = k8s.core.v1.EnvVarSourceArgs(secret_key_ref=reference)
    return k8s.core.v1.EnvVarArgs(name=variable, value_from=source)


def _volumes(claim: pulumi.Input[str], scripts: pulumi.Input[str]) -> list[k8s.core.v1.VolumeArgs]:
    data = k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=claim)
    init = k8s.core.v1.ConfigMapVolumeSourceArgs(name=scripts, default_mode=0o444)
    return [
        k8s.core.v1.VolumeArgs(name="data", persistent_volume_claim=data),
        k8s.core.v1.VolumeArgs(name="init", config_map=init),
        pods.scratch("run", "16Mi"),
        pods.scratch("tmp", "64Mi"),
        # Parallel builds of HNSW indexes share memory here; a container's own 64 MB are too few.
        pods.scratch("shm", "256Mi", medium="Memory"),
    ]


def _probe(*, period: int, failures: int) -> k8s.core.v1.ProbeArgs:
    # By TCP: while the entrypoint creates the database it listens on the socket only.
    command = ["pg_isready", "--host=127.0.0.1", f"--username={ROLE}", f"--dbname={ROLE}"]
    return k8s.core.v1.ProbeArgs(
        exec_=k8s.core.v1.ExecActionArgs(command=command),
        period_seconds=period,
        failure_threshold=failures,
        timeout_seconds=5,
    )
