"""One cell, and a campaign of cells: warm-up, load, records."""
