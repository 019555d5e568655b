"""Pure functions from records to windows, estimates, doubts and verdicts."""
