"""The server's own view, and the host's."""
