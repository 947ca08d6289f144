"""Where arrays lie on the devices of a mesh, and what every device will hold; no mathematics."""
