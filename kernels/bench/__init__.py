"""Benchmarks as data: `python -m kernels.bench RECIPE` runs one and records what it measured."""
