"""The domain rules of the three tiers: plain values and pure functions, no I/O."""
