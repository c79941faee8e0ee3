"""One transformer block: tokens look at each other, then each for itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels import attention
from kernels.fused import layer_norm, linear_add
from vit.config import ViTConfig
from vit.trace import LayerTrace


def split_heads(qkv: Tensor, heads: int) -> Tensor:
    """[batch, tokens, 3 * dim] -> a view [3, batch, heads, tokens, head_dim]: q, k and v."""
    return qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)


def layer_trace(qkv: Tensor, heads: int, log_sum_exp: Tensor) -> LayerTrace:
    """One layer's trace, as views of its packed q, k and v."""
    q, k, v = split_heads(qkv, heads)
    return LayerTrace(q, k, v, log_sum_exp)


class Norm(nn.LayerNorm):
    """LayerNorm over the last dimension, in one kernel of ours where `kernels.fused` has one."""

    def forward(self, input: Tensor) -> Tensor:  # named as in torch
        return layer_norm(input, self.weight, self.bias, self.eps)


class Attention(nn.Module):
    """Multi-head self-attention that hands back what any row of its matrix can be rebuilt from."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.dim, 3 * config.dim)
        self.output = nn.Linear(config.dim, config.dim)

    def forward(
        self, tokens: Tensor, implementation: str, into: Tensor | None = None
    ) -> tuple[Tensor, LayerTrace]:
        """tokens [batch, tokens, dim] -> the same shape, before the output layer, and the layer's trace.

        `into` [batch, tokens, 3 * dim] is where q, k and v are written; None takes new memory.
        """
        if into is None:
            qkv = self.qkv(tokens)
        else:
            flat = tokens.flatten(0, 1)
            qkv, weight = into, self.qkv.weight.t()
            torch.addmm(self.qkv.bias, flat, weight, out=into.view(len(flat), -1))
        q, k, v = split_heads(qkv, self.heads)  # views, each [batch, heads, tokens, head_dim]
        mixed, log_sum_exp = attention(q, k, v, implementation=implementation)
        return mixed.transpose(1, 2).flatten(2), LayerTrace(q, k, v, log_sum_exp)


class Mlp(nn.Module):
    """Two linear layers with a GELU between them, a slice of tokens at a time.

    Tokens do not meet here, so the widened tokens of a large picture never need to exist all at once.
    """

    SLICE = 4096

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.widen = nn.Linear(config.dim, config.mlp_dim)
        self.narrow = nn.Linear(config.mlp_dim, config.dim)

    def forward(self, tokens: Tensor, scale: Tensor, residual: Tensor) -> Tensor:
        """tokens and residual [batch, tokens, dim] -> residual + scale * MLP(tokens)."""
        if tokens.shape[1] <= self.SLICE:
            return scaled_and_added(self.narrow, F.gelu(self.widen(tokens)), scale, residual)
        result = torch.empty_like(residual)
        for start in range(0, tokens.shape[1], self.SLICE):
            part = slice(start, start + self.SLICE)
            wide = F.gelu(self.widen(tokens[:, part]))
            result[:, part] = scaled_and_added(self.narrow, wide, scale, residual[:, part])
        return result


class Block(nn.Module):
    """Pre-norm transformer block with LayerScale (Touvron et al. 2021)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = Norm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.scale1 = nn.Parameter(torch.ones(config.dim))
        self.norm2 = Norm(config.dim, eps=config.norm_eps)
        self.mlp = Mlp(config)
        self.scale2 = nn.Parameter(torch.ones(config.dim))

    def attend(
        self, tokens: Tensor, implementation: str, into: Tensor | None = None
    ) -> tuple[Tensor, LayerTrace]:
        """The first half: tokens exchange what they hold; also the layer's trace."""
        mixed, trace = self.attention(self.norm1(tokens), implementation, into)
        return scaled_and_added(self.attention.output, mixed, self.scale1, tokens), trace

    def think(self, tokens: Tensor) -> Tensor:
        """The second half: each token for itself."""
        return self.mlp(self.norm2(tokens), self.scale2, tokens)


def scaled_and_added(layer: nn.Linear, tokens: Tensor, scale: Tensor, residual: Tensor) -> Tensor:
    """residual + scale * layer(tokens)."""
    return linear_add(tokens, layer.weight, layer.bias, scale, residual)
