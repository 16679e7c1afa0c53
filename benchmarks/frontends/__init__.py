"""Models of other formats: what whet computes of them, compared with where they come from."""
