"""Result files of other tools, read by their documented keys."""
