"""What a kernel moves through memory: by formula, counted at its loads and stores, measured by the GPU."""
