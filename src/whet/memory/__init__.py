"""Where every value lives: lifetimes, shared storage, and offsets in the arena."""
