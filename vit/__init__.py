"""A real Vision Transformer whose attention maps come out of the fast kernel.

model = load_model("dinov2-small")
trace = model.trace(load_image("photo.jpg"), side=518)
MAPS["row"](trace, layer=-1, query=(12, 20))
"""

from vit.image import Photo, load_image
from vit.maps import MAPS
from vit.weights import load_model

__all__ = ["MAPS", "Photo", "load_image", "load_model"]
