"""One upright RGB picture, used for the model and for the screen alike.

    photo = load_image("photo.jpg")
    grid = photo.grid(side=518)
    photo.pixels(grid, config.mean, config.std)  # for the model
    photo.jpeg()                                 # for the screen

Because both come from the same upright picture, and the grid knows its box on it, a patch of a map
and the pixels under it cannot drift apart. Pillow stays inside this package.
"""

from vit.image.limits import MAX_FILE_BYTES, ImageError
from vit.image.photo import Crop, Photo, load_image

__all__ = ["MAX_FILE_BYTES", "Crop", "ImageError", "Photo", "load_image"]
