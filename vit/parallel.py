"""One picture over several processes, a GPU each: every rank holds a stretch of the tokens.

Tokens meet in attention alone, where keys and values are passed round the ranks (`kernels.parallel`).
All the rest is token by token, so each rank embeds its own strip of the picture and never holds more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from kernels import Problem, choose
from kernels.parallel import Shards, ring_attention
from kernels.parallel.faults import check_group
from vit.grid import PatchGrid
from vit.image import Photo
from vit.model import Block, Progress, VisionTransformer
from vit.trace import LayerTrace, Query, Trace


@dataclass(frozen=True)
class SplitTrace:
    """This rank's share of a trace. `vit.parallel_maps` reads whole maps from the shares of all ranks.

    `share` has q, k, v and the log-sum-exp of the rank's own tokens; its grid and names are the whole
    picture's, and so is every log-sum-exp: it runs over the keys of all ranks.
    """

    share: Trace
    shards: Shards
    group: dist.ProcessGroup | None

    def token(self, query: Query) -> int:
        """The query's place in the whole sequence."""
        return self.share.token(query)


def trace_parallel(
    model: VisionTransformer,
    photo: Photo,
    side: int = 518,
    group: dist.ProcessGroup | None = None,
    implementation: str = "auto",
    progress: Progress | None = None,
) -> SplitTrace:
    """`model.trace` over all ranks of the group: each calls it with the same arguments, and keeps its share.

    Args:
        model: the same weights on every rank, on the rank's own device.
        photo, side, implementation, progress: as for `model.trace`.
        group: the ranks that share the picture; None means all.

    Raises:
        ValueError: there is no process group, the side is too small, or the implementation cannot run.
        LostRank: another rank ended, or did not come in time.
    """
    check_group(group)
    grid = photo.grid(side, model.config.patch)
    shards = shards_of(model, grid, group)
    name = named(implementation, model, shards)
    rows = rows_of(model, grid, shards)
    config = model.config
    pixels = photo.pixels(grid, config.mean, config.std, model.device, rows).to(model.dtype)
    kept = []
    for layer in split_layers(model, pixels, grid, shards, group, name):
        kept.append(layer)
        if progress is not None:
            progress(len(kept), config.layers)
    return SplitTrace(model.trace_of(tuple(kept), grid, name), shards, group)


def shards_of(
    model: VisionTransformer, grid: PatchGrid, group: dist.ProcessGroup | None = None
) -> Shards:
    """Who holds which tokens of a picture on this grid."""
    tokens = len(model.config.prefix) + grid.patches
    return Shards.even(tokens, dist.get_world_size(group), dist.get_rank(group))


def named(implementation: str, model: VisionTransformer, shards: Shards) -> str:
    """What "auto" stands for at the size of a shard."""
    if implementation != "auto":
        return implementation
    config, longest = model.config, max(shards.keys)
    dtype = str(model.dtype).removeprefix("torch.")
    return choose(Problem(1, config.heads, longest, longest, config.head_dim, dtype), model.device)


@torch.inference_mode()
def split_layers(
    model: VisionTransformer,
    pixels: Tensor,
    grid: PatchGrid,
    shards: Shards,
    group: dist.ProcessGroup | None,
    implementation: str,
) -> Iterator[LayerTrace]:
    """`model.layers` for this rank's tokens; `pixels` are the rows `rows_of` of the picture."""
    tokens = embed_share(model, pixels, grid, shards)
    del pixels
    for block in model.stack:
        tokens, trace = attend(block, tokens, shards, group, implementation)
        yield trace
        del trace
        tokens = block.think(tokens)


def attend(
    block: Block,
    tokens: Tensor,
    shards: Shards,
    group: dist.ProcessGroup | None,
    implementation: str,
) -> tuple[Tensor, LayerTrace]:
    """`Block.attend` where the tokens of the other ranks are looked at as well."""
    qkv = block.attention.qkv(block.norm1(tokens)).unflatten(2, (3, block.attention.heads, -1))
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # views, each [batch, heads, own tokens, head_dim]
    mixed, log_sum_exp = ring_attention(
        q, k, v, group, implementation=implementation, shards=shards
    )
    mixed = block.attention.output(mixed.transpose(1, 2).flatten(2))
    return torch.addcmul(tokens, block.scale1, mixed), LayerTrace(q, k, v, log_sum_exp)


# --- this rank's strip of the picture ---------------------------------------------------------------


def patches_of(model: VisionTransformer, shards: Shards) -> range:
    """This rank's patches, row by row; the tokens before them, the prefix, are the first rank's."""
    prefix = len(model.config.prefix)
    first, count = shards.first_query, shards.queries[shards.rank]
    return range(max(first - prefix, 0), max(first + count - prefix, 0))


def rows_of(model: VisionTransformer, grid: PatchGrid, shards: Shards) -> range:
    """The rows of patches that hold this rank's patches; those at the edges may be another's in part."""
    patches = patches_of(model, shards)
    if not patches:
        return range(0)
    return range(patches.start // grid.columns, -(-patches.stop // grid.columns))


def embed_share(
    model: VisionTransformer, pixels: Tensor, grid: PatchGrid, shards: Shards
) -> Tensor:
    """The rows `rows_of` of the picture -> this rank's tokens [1, own tokens, dim]."""
    embedding, first = model.embedding, shards.first_query
    prefix = torch.cat(
        [embedding.class_token + embedding.class_position, embedding.registers], dim=1
    )
    prefix = prefix[:, first : first + shards.queries[shards.rank]]
    patches = patches_of(model, shards)
    if not patches:
        return prefix
    before = rows_of(model, grid, shards).start * grid.columns
    own = embedding.projection(pixels).flatten(2).transpose(1, 2)
    own = own[:, patches.start - before : patches.stop - before]
    positions = embedding.positions(grid.rows, grid.columns)[:, patches.start : patches.stop]
    return torch.cat([prefix, own + positions], dim=1)
