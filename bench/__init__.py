"""Benchmarks of the product itself: each prints ratios or errors against a limit in the same run."""
