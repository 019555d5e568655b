"""Facts about engines, one module each, no I/O: endpoints, spelling, metric names, log lines."""
