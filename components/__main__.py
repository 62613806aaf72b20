"""Serves the components to Pulumi programs in any language, as a plugin."""

from pulumi.provider.experimental import component_provider_host

from pulumi_kaos import DevPostgres, MemoryStore, ModelAPI

if __name__ == "__main__":
    component_provider_host(name="kaos", components=[MemoryStore, ModelAPI, DevPostgres])
