"""Lanes: start, attach, wait until a real token comes, describe, stop."""
