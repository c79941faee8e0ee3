"""Interactive parts of the page, each a Streamlit component with its own folder."""
