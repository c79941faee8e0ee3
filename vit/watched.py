"""Whether a model still has the weights it had. It is asked at every replay, so it walks no modules."""

from __future__ import annotations

from itertools import chain
from operator import attrgetter, is_

from torch import Tensor, nn

version_of = attrgetter("_version")


class Watched:
    """The weights of a model as they are now, held: their memory is not given back before this goes."""

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self.tables = [table for one in modules for table in (one._modules, one._parameters)]
        self.entries = self.entries_now()
        self.weights = tuple(model.parameters())
        self.memory = tuple(weight.data for weight in self.weights)  # held if .data is replaced
        self.addresses = self.addresses_now()
        # An inference tensor does not count how often it was changed.
        self.counting = tuple(weight for weight in self.weights if not weight.is_inference())
        self.versions = self.versions_now()

    def unchanged(self) -> bool:
        """Whether each module and weight is the same one, lies where it lay, and was not written to since."""
        entries = self.entries_now()
        return (
            len(entries) == len(self.entries)
            and all(map(is_, entries, self.entries))
            and self.addresses_now() == self.addresses
            and self.versions_now() == self.versions
        )

    def entries_now(self) -> list[object]:
        """Every module and weight below the model, in order."""
        return list(chain.from_iterable(map(dict.values, self.tables)))

    def addresses_now(self) -> list[int]:
        return [*map(Tensor.data_ptr, self.weights)]

    def versions_now(self) -> list[int]:
        return [*map(version_of, self.counting)]
