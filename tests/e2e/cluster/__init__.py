"""A real one-node Kubernetes and the real Pulumi engine, on a machine that has neither.

`python -m tests.e2e.cluster up | images | down` is the command line. Tests take `lifecycle.up`,
`images.build_and_load` and `environment.pulumi_environment`.
"""
