"""Published weights: read into our layers, compared with their reference, and written out again."""
