"""Attention over some keys, and over others, put together: the online-softmax rule between shards."""

from __future__ import annotations

import torch
from torch import Tensor


class Merged:
    """Attention over all the keys that were added so far; sums in float32, rounded once in `output`.

    With L the log-sum-exp of the keys so far and l that of the new ones, both together have
    log(exp(L) + exp(l)), and the new output counts by sigmoid(l - L), the old one by the rest.

    Source: Milakov and Gimelshein 2018, section 3.1; Dao 2023, section 2.3.1, with whole shards as tiles.
    """

    def __init__(self, output: Tensor, log_sum_exp: Tensor) -> None:
        """The first part: output [batch, heads, queries, head_dim], log_sum_exp float32 without the last."""
        self.dtype = output.dtype
        # A copy in any case: it is written to, and the layout stays that of the part.
        self.sum = output.to(torch.float32, copy=True)
        self.log_sum_exp = log_sum_exp

    def add(self, output: Tensor, log_sum_exp: Tensor) -> None:
        """Another part, over other keys."""
        # The difference is NaN where neither part saw a key; both outputs are 0 there.
        share = torch.sigmoid(log_sum_exp - self.log_sum_exp).nan_to_num_(0.0).unsqueeze(-1)
        self.sum.mul_(1 - share).addcmul_(output, share)
        self.log_sum_exp = torch.logaddexp(self.log_sum_exp, log_sum_exp)

    def output(self) -> Tensor:
        """The whole, in the dtype of the parts."""
        return self.sum.to(self.dtype)
