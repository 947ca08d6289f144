"""What a page may ask, one file for each view."""
