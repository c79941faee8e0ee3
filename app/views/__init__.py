"""One page per file: choose, compute, draw."""
