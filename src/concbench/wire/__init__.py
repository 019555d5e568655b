"""Bytes in, events out, no I/O: HTTP/1.1 responses, server-sent events, token events."""
