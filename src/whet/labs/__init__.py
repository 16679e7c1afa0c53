"""Methods of research, built on the public API alone."""
