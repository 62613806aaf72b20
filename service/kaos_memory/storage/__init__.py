"""What a storage does, and the storages that do it."""
