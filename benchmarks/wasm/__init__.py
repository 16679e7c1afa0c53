"""Programs in WebAssembly against the same on this machine."""
