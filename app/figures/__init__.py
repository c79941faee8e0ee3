"""Pure functions: arrays in, a picture or a file out. No Streamlit here."""
