"""`kaos-memory`: the service's own command line, for those who operate a store."""
