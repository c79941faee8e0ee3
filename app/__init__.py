"""What people see; the only package with Streamlit. It imports vit, and vit imports kernels."""
