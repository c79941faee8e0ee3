"""Attention maps of a picture from the command line.

The model runs with FlashAttention, which never stores the attention matrix; the map that you ask for
is rebuilt afterwards from Q, K and the log-sum-exp.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from vit import MAPS, load_image, load_model
from vit.files import npz, write
from vit.image import ImageError
from vit.image.montage import montage_png
from vit.trace import Query, token_index
from vit.weights import WeightsError

EXAMPLES = """examples:
  python -m vit photo.jpg --out maps.npz
      where the class token looks in the last layer, every head
  python -m vit photo.jpg --query 10,12 --layer 5 --png map.png
      where the patch in row 10, column 12 looks in layer 5, as a picture
  python -m vit photo.jpg --map column --query 10,12 --side 1036 --out maps.npz
      who looks at that patch, on a finer grid

Rows, columns, layers and heads count from 0; row 0, column 0 is the upper left patch.
The .npz file holds: map [heads, grid rows, grid columns], log_sum_exp [heads, tokens] of that layer,
and settings, a JSON text with everything needed to make the map again. Read it with
  numpy.load("maps.npz")["map"]
"""


class Refused(ValueError):
    """What is wrong with the request, in one sentence."""


class Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise Refused(f"{message}; see python -m vit --help")


def parser() -> Parser:
    """The command line, with its help."""
    parser = Parser(
        prog="python -m vit",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("photo", help="the picture: JPEG, PNG, WebP, GIF, BMP, TIFF or AVIF")
    add(
        "--map",
        choices=MAPS,
        default="row",
        help="row: where the query looks; column: who looks at it",
    )
    add("--layer", type=int, default=-1, help="layer, counted from 0; -1 is the last (default)")
    add(
        "--query",
        type=query,
        default="class",
        help="ROW,COLUMN, or cls, or register-1 (default: cls)",
    )
    add("--side", type=int, default=518, help="longer side in pixels, 14 a patch (default: 518)")
    add("--square", action="store_true", help="look at the largest centred square only")
    add("--model", default="dinov2-small", help="a preset, a folder, or owner/name on the hub")
    add("--implementation", default="auto", help="which attention runs (default: auto)")
    add("--out", type=Path, help="write the map as this .npz file")
    add("--png", type=Path, help="write all heads side by side as this picture")
    return parser


def query(text: str) -> Query:
    """ "10,12" as a patch, anything else as the name of a token."""
    numbers = text.split(",")
    if len(numbers) == 2 and all(number.strip().isdecimal() for number in numbers):
        return int(numbers[0]), int(numbers[1])
    if not text.replace("-", "").isalnum():
        raise argparse.ArgumentTypeError(f"{text!r} is neither ROW,COLUMN nor a token's name")
    return text.replace("-", " ")


def main(arguments: list[str] | None = None) -> int:
    """Write the files that were asked for; 2 with one line on stderr, and no file, when it fails."""
    try:
        options = parser().parse_args(arguments)
        check_targets(options.out, options.png)
        files = make(options)
        for path, content in files.items():
            write(path, content)
    except (Refused, ImageError, WeightsError, ValueError, OSError, MemoryError) as fault:
        reason = " ".join(str(fault).split()) or type(fault).__name__
        print(f"python -m vit: {reason}", file=sys.stderr)
        return 2
    return 0


def check_targets(*paths: Path | None) -> None:
    """Refuse before the work what could not be written after it."""
    chosen = [path for path in paths if path is not None]
    if not chosen:
        raise Refused("say where the map goes: --out maps.npz, --png map.png, or both")
    for path in chosen:
        if path.is_dir():
            raise Refused(f"{path} is a folder; name a file")
        if not path.parent.is_dir():
            raise Refused(f"there is no folder {path.parent}; make it first")


def make(options: argparse.Namespace) -> dict[Path, bytes]:
    """The content of every file, all made before the first is written."""
    photo = load_image(options.photo, crop="square" if options.square else None)
    model = load_model(options.model)
    layer = model.layer_index(options.layer)
    # Asked before the model runs, so that a wrong patch costs no minute.
    token_index(options.query, model.config.prefix, photo.grid(options.side, model.config.patch))
    trace = model.trace(photo, options.side, options.implementation, only=layer)
    maps = MAPS[options.map](trace, 0, options.query).cpu().numpy()
    files = {}
    if options.out:
        settings = {
            "model": trace.model,
            "map": options.map,
            "layer": layer,
            "query": options.query,
            "side": options.side,
            "crop": photo.crop,
            "picture_sha256": photo.digest,
            "implementation": trace.implementation,
            "dtype": str(trace.layers[0].q.dtype).removeprefix("torch."),
        }
        lse = trace.layers[0].log_sum_exp[0].cpu().numpy()
        files[options.out] = npz(maps, lse, settings)
    if options.png:
        files[options.png] = montage_png(maps)
    for note in photo.notes:
        print(note, file=sys.stderr)
    return files


if __name__ == "__main__":
    sys.exit(main())
