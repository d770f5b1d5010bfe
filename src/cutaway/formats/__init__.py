"""Model files: from a path to named tensors in their block formats, and what those formats mean in NumPy."""
