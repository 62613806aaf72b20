"""Agent memory in three tiers for many tenants."""
