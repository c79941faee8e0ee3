"""Other people's kernels, as implementations, to compare ours with; "auto" never takes one of them."""
