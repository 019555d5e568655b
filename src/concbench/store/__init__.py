"""The study on disk: append-only, nothing is ever overwritten."""
