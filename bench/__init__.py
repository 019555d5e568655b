"""Benchmarks of the product itself: ratios or errors against a limit in the same run."""
