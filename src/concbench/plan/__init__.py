"""What is to be run: token-exact prompts, arrival schedules, the order of cells."""
