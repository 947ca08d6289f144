"""The ground: arrays, trees, errors, files, settings, and the dispatcher of engines."""
