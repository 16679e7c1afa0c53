"""Memory planning: lifetimes, shared storage, and offsets in the arena."""
