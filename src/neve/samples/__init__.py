"""Believable bad tables, deterministic from a seed: for the demo, the tests and the benchmarks."""

from neve.samples.registry import SAMPLES, Sample
from neve.samples.target import Target

__all__ = ["SAMPLES", "Sample", "Target"]
