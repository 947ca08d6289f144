"""The requests of the page, one file for each view."""
