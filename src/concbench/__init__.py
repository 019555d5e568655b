"""concbench benchmarks LLM serving engines under concurrency and knows its own error."""

__version__ = "0.1.0"
