"""The load generator: due, send, stamp. Nothing here parses JSON, logs or imports numpy."""
