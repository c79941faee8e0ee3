"""Every word on the screen, one module per language."""
