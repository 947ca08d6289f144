"""The library's calls for Python and notebooks: train, resume, replay, load, save, explore, index and search."""
