"""`python -m vit.weights`: prepare the default weights, so that the first start need not."""

from __future__ import annotations

import argparse
import sys

from vit.config import PRESETS
from vit.weights.errors import WeightsError
from vit.weights.packaged import prepare


def main(arguments: list[str] | None = None) -> int:
    """Prepare the presets that are named; 0 when all are ready, 1 after a sentence on stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m vit.weights",
        description="Convert the packaged weights once and keep them where the app looks for them."
        " Running it again does nothing but check them. FLASHLENS_CACHE chooses another folder.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        default=list(PRESETS),
        metavar="NAME",
        help=f"one of: {', '.join(PRESETS)}",
    )
    names = parser.parse_args(arguments).names
    try:
        for name in names:
            if name not in PRESETS:
                raise WeightsError(f"There is no preset {name!r}; choose {', '.join(PRESETS)}.")
            prepare(name, lambda done, sentence: print(f"{done:4.0%}  {sentence}", flush=True))
    except WeightsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
