"""Every word on the screen, in English. A translation is one more file like this."""

from __future__ import annotations

CANVAS = {
    # names of things, filled in elsewhere
    "patch": "patch ({row}, {column})",
    "token": "the {name} token",
    "head": "head {head}",
    "place": "layer {layer}, head {head}",
    # the picture
    "picture": "Picture",
    "picture_hint": "Click a patch to ask where it looks. Arrow keys move it.",
    "picture_label": (
        "Picture with {rows} rows and {columns} columns of patches. Arrow keys move the query, "
        "P pins it, Escape removes the pin."
    ),
    "query_is": "query: {query}",
    "hover_place": "row {row} · column {column}",
    "hover_looks": "gets {value} in head {head}",
    "hover_looked_at": "gives {value} in head {head}",
    "spoken": "Query: row {row}, column {column}.",
    "spoken_token": "Query: the {name} token.",
    "tokens": "Tokens without a place",
    "pin": "Pin to compare",
    "pin_hint": "Keeps this query as B, to compare the next one with it (key P)",
    "unpin": "Remove pin",
    "unpin_hint": "Stops comparing (Escape)",
    "direction": "Direction",
    "looks": "where it looks",
    "looked_at": "who looks at it",
    # the heads of one layer
    "heads_looks": "Where {query} looks · layer {layer}",
    "heads_looked_at": "Who looks at {query} · layer {layer}",
    "scale": "Colours",
    "scale_shared": "shared",
    "scale_each": "per map",
    "scale_log": "logarithmic",
    "scale_shared_hint": "One scale for all heads of this layer, up to the largest patch value",
    "scale_each_hint": "Each map up to its own largest value: shapes compare, amounts do not",
    "scale_log_hint": "One scale for all heads; equal steps are equal factors",
    "bar_shared": "probability, all heads of layer {layer}",
    "bar_each": "probability, head {head} alone; every map has its own scale",
    "bar_log": "probability, all heads of layer {layer}, equal steps are equal factors",
    "outside": "Not on the scale: {share} of this head goes to {names}.",
    "outside_looked_at": "Not on the scale: {share} of this column lies on {names}.",
    "tokens_together": "class and registers",
    "not_a_map": "This map holds a value that is not a probability, so it is not drawn.",
    "head_most": "max {value}",
    # every layer and head
    "overview": "Every layer, every head",
    "overview_hint": "Rows are layers, columns are heads. Click one to open it.",
    "overview_label": (
        "{layers} layers with {heads} heads each; layer {layer}, head {head} is open. "
        "Arrow keys choose."
    ),
    # one head, large
    "large": "Layer {layer}, head {head}",
    "large_hint": "over the picture; click a patch to ask from there",
    "opacity": "Opacity",
    "one_looks": "where {query} looks",
    "one_looked_at": "who looks at {query}",
    "map_a": "A · {query}",
    "map_b": "B · {query}",
    "waiting_pin": "B is on its way.",
    # facts beside it
    "facts": "Measured",
    "facts_a": "Measured, A",
    "share_looks": "goes to {name}",
    "share_looked_at": "comes from {name}",
    "registers": "registers",
    "entropy": "entropy",
    "bits": "{value} bits",
    "entropy_hint": "0 bits: all on one token. {most} bits: spread evenly over all {tokens}.",
    "distance": "mean distance",
    "patches": "{value} patches",
    "no_distance": "no place",
    "distance_hint": "How far from the query, on average; a token has no place to measure from.",
    "strongest": "Ten strongest patches",
    "strongest_label": "row {row}, column {column}, probability {value}",
    # while the maps of a new query are on their way
    "updating": "Reading the maps of {query}",
}

FRAME = {
    "title": "Flashlens",
    "lead": "What a Vision Transformer sees, straight from a FlashAttention kernel.",
    "heads": "Heads",
    "bad_link": "The link's {name} makes no sense here, so its default is shown.",
    "outside_grid": "The link's {name} is outside this picture's grid, so it is left out.",
}

PICTURE = {
    "strip": "Picture",
    "title_cat": "Cat",
    "title_astronaut": "Astronaut",
    "title_coffee": "Coffee",
    "title_rocket": "Rocket",
    "title_upload": "Yours",
    "alt_cat": "A tabby cat looks past the camera",
    "alt_astronaut": "An astronaut in an orange suit beside a flag and a model shuttle",
    "alt_coffee": "A cup of coffee on a red saucer with a spoon",
    "alt_rocket": "A rocket on its launch pad at dusk",
    "alt_upload": "The picture that you brought",
    "upload": "Your picture",
    "upload_hint": "Drop a picture on this page, paste one, or choose a file.",
    "upload_help": "JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF, up to {limit} MB.",
    "privacy": "It stays in the server's memory only and is soon forgotten.",
    "camera": "Camera",
    "camera_take": "Take a picture",
    "square": "Square",
    "square_help": "Use the central square only. The box is drawn on the picture.",
    "forgotten": (
        "That picture is no longer kept here, so a sample is shown; add your picture once more."
    ),
    "unknown": "There is no sample of that name, so another one is shown.",
}

SIZE = {
    "label": "Size · memory vs every matrix stored",
    "option": "{side} px · {tokens:,} tokens · {ours} vs {all}",
    "too_large": "{side} px · {tokens:,} tokens · too large here",
    "help": (
        "The longer side that the picture is resized to. Memory by formula: weights, one block's "
        "activations, and q, k, v and log-sum-exp of all {layers} layers, on a GPU for smaller "
        "pictures a second time in a CUDA graph; against the same with all {layers} × {heads} "
        "matrices of tokens × tokens stored and no graph. A time is shown once it was measured here."
    ),
    "refused": "{side} px needs {need} and {free} are free here; choose a smaller size.",
    "not_kept": (
        "{side} px leaves {need} to keep and {limit} are set aside for that; choose a smaller size."
    ),
    "seconds": "{option} · {seconds} s",
}

MODEL = {
    "label": "Model",
    "dinov2-small": "DINOv2 ViT-S/14",
}

WORK = {
    "self_test": "Testing the attention kernel against float64",
    "loading": "Loading the model",
    "layer": "{done} of {count} layers done · attention by {name}",
    "one_ahead": "One visitor is ahead of you; your picture is next.",
    "ahead": "{ahead} visitors are ahead of you; your picture waits in line.",
}

HEADS = {
    "try_cat": "Try this: click the cat's eye, then another head, then a bright patch of its map.",
    "try_astronaut": "Try this: click the face, then the flag. Which heads stay where they are?",
    "try_coffee": "Try this: click the coffee, then the spoon. Which heads follow the object?",
    "try_rocket": "Try this: click the rocket, then the sky. Which heads see only what is near?",
    "try_other": "Try this: click something, then its background. Which heads tell them apart?",
}

PROOF = {
    "title": "The proof",
    "sum": "Row sums {low} to {high}",
    "error": "largest error against float64 {error}",
    "sample": "{rows} rows of all {heads} heads of layer {layer}, measured here just now",
    "never": (
        "This attention matrix was never stored: {tokens} × {tokens} × {heads} heads would have "
        "been {bytes} a layer (formula). Each map is rebuilt from q, k and the log-sum-exp."
    ),
    "ran": "Attention by {implementation}, {dtype}, on {device}. Self-test: {self_test}",
    "cpu": "the CPU",
}

SAVE = {
    "png": "Picture (PNG)",
    "png_help": "The picture, the query and all heads of this layer, with the colour bar.",
    "npz": "Numbers (NPZ)",
    "npz_help": "map [heads, rows, columns], log_sum_exp [heads, tokens] and settings, for NumPy.",
    "looks": "Where {query} looks",
    "looked_at": "Who looks at {query}",
    "patch": "patch ({row}, {column})",
    "token": "the {name} token",
    "head": "head {head} · max {top}",
    # Only letters that Pillow's own font has: no multiplication sign.
    "caption": (
        "layer {layer} · {side} px, {rows} rows and {columns} columns of patches · {model} · "
        "attention by {implementation}"
    ),
    "shared": "probability, one scale for all heads",
    "each": "each head on its own scale, 0 to its largest value",
    "log": "probability, logarithmic, one scale for all heads",
}

TROUBLE = {
    "unforeseen": "Something unforeseen went wrong here; reload the page or choose a sample.",
    "out_of_memory": "This size does not fit into this machine's memory; choose a smaller size.",
}
