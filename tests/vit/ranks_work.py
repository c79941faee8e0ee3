"""What the ranks of tests/vit/test_parallel.py do; a module of its own, for the spawned processes."""

from __future__ import annotations

import torch
import torch.distributed as dist
from PIL import Image

from tests.ranks import sentence_of
from vit import Photo
from vit.bench import parallel
from vit.config import ViTConfig
from vit.model import VisionTransformer
from vit.parallel import trace_parallel
from vit.parallel_maps import query_maps, query_tokens

CONFIG = ViTConfig(dim=48, layers=3, heads=3, registers=2, position_grid=5)

PICTURES = {
    # name: (width, height) of the photo, patches on its longer side
    "square": ((300, 300), 11),
    "wide": ((400, 150), 11),
    "high": ((100, 333), 9),
    "one patch": ((50, 50), 1),  # with the prefix, fewer patches than ranks
}


def model() -> VisionTransformer:
    """A small model with registers, the same in every process; its scales make the layers count."""
    torch.manual_seed(3)
    made = VisionTransformer(CONFIG).eval().requires_grad_(False)
    for parameter in (made.embedding.class_token, made.embedding.registers):
        parameter.normal_()
    for name, parameter in made.named_parameters():
        if "position" in name or "qkv.weight" in name:
            parameter.normal_(std=0.4)
    return made


def photo(name: str) -> Photo:
    """Noise that is the same in every process."""
    (width, height), _ = PICTURES[name]
    noise = torch.randint(0, 256, (height, width, 3), generator=torch.Generator().manual_seed(4))
    picture = Image.fromarray(noise.to(torch.uint8).numpy())
    return Photo(picture, (0.0, 0.0, float(width), float(height)), "")


def side_of(name: str) -> int:
    return PICTURES[name][1] * CONFIG.patch


def query_of(name: str) -> tuple[int, int] | str:
    return "register 1" if name == "one patch" else (2, 1)


def every_picture(rank: int, world: int) -> dict[str, dict]:
    """name and number of ranks -> this rank's share, and the maps on the first."""
    pair, lone = dist.new_group([0, 1]), dist.new_group([0])
    made = model()
    found = {}
    for name in PICTURES:
        for size, group in ((3, None), (2, pair), (1, lone)):
            if rank < size:
                found[f"{name}, {size}"] = one_picture(made, name, group)
    found["refusals"] = refusals(made)
    found["bench"] = parallel.measure(made, 11 * CONFIG.patch, 2)
    found["no side"] = sentence_of(lambda: parallel.measure(made, 20, 1))
    return found


def one_picture(made: VisionTransformer, name: str, group: dist.ProcessGroup | None) -> dict:
    seen = []
    trace = trace_parallel(
        made, photo(name), side_of(name), group, progress=lambda *done: seen.append(done)
    )
    query = query_of(name)
    return {
        "layers": trace.share.layers,
        "first": trace.shards.first_query,
        "implementation": trace.share.implementation,
        "progress": seen,
        "row": query_maps(trace, "row", query),
        "column": query_maps(trace, "column", query),
        "received": query_maps(trace, "received"),
        "row tokens": query_tokens(trace, "row", query),
    }


def refusals(made: VisionTransformer) -> list[str]:
    trace = trace_parallel(made, photo("square"), 28)
    return [
        sentence_of(lambda: query_maps(trace, "rows")),
        sentence_of(lambda: query_maps(trace, "row", (2, 0))),
        sentence_of(lambda: trace_parallel(made, photo("square"), 0)),
        sentence_of(lambda: trace_parallel(made, photo("square"), 28, implementation="fa9")),
    ]
