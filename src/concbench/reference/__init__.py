"""The known-truth server: it says what really happened, to check the instrument against."""
