"""Checkpoints from the Hugging Face hub, fetched only when a user names one."""

from __future__ import annotations

import re
from pathlib import Path

from vit.weights.checkpoint import Progress, silent
from vit.weights.errors import WeightsError
from vit.weights.from_huggingface import INDEX

HUB_ID = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?"
)
"""owner/name, or owner/name@revision to pin a branch, tag or commit."""

FILES = (
    "config.json",
    "preprocessor_config.json",
    "model.safetensors",
    INDEX,
    "model-*-of-*.safetensors",
)
"""All that is ever fetched: numbers and plain tensors, nothing that could run."""


def fetch(name: str, progress: Progress = silent) -> Path:
    """The folder with the files of "owner/name", from the hub's own cache where it has them.

    Raises:
        WeightsError: no network, no such repository, or it may not be read without leave.
    """
    import huggingface_hub as hub  # kept out of `import vit`: most never use it
    from huggingface_hub import errors

    match = HUB_ID.fullmatch(name)
    if match is None:
        raise WeightsError(f"{name!r} is not a hub id; it should look like owner/name.")
    progress(0.0, f"Fetching {name} from the Hugging Face hub.")
    repository, revision = match["repository"], match["revision"]
    try:
        return Path(
            hub.snapshot_download(repository, revision=revision, allow_patterns=list(FILES))
        )
    except errors.GatedRepoError:
        sentence = (
            "asks for leave before it can be read; accept its terms on the hub and log in there"
        )
    except errors.RepositoryNotFoundError:
        sentence = "is not on the Hugging Face hub, or is private; check the name"
    except errors.RevisionNotFoundError:
        sentence = f"has no revision {revision!r}; check it, or leave it out"
    except errors.HFValidationError:
        raise WeightsError(f"{name!r} is not a hub id; it should look like owner/name.") from None
    except (errors.LocalEntryNotFoundError, ConnectionError):
        sentence = "is not on this machine and the hub cannot be reached; check the network"
    except Exception as error:  # whatever the network library raises, the user gets one sentence
        sentence = (
            f"could not be fetched from the Hugging Face hub ({type(error).__name__}); try again"
        )
    raise WeightsError(f"{name} {sentence}.")
