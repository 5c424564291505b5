"""Benchmarks: absolute times live here, never in tests. Each prints a table and writes ``bench/results/``."""
