"""Makes the environments that the project runs in, with the standard library alone."""
