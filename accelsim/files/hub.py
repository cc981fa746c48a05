"""Files that describe a checkpoint of the Hugging Face Hub, by its id: its configuration and the
index of its weights, which are never fetched.

`huggingface_hub` (the extra ``hub``) fetches and keeps them; without a network its cache is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from accelsim.errors import InvalidValueError, MissingDependencyError
from accelsim.files.plainfile import READ_BELOW

#: What is fetched: the first has to be there.
_FILES = ("config.json", "hf_quant_config.json", "model.safetensors.index.json")
#: Seconds to wait for the first answer.
_LONGEST_S = 10.0


def hub_folder(repo_id: str) -> Path:
    """Folder with the files that describe a checkpoint.

    Args:
        repo_id: As on the Hub: ``Qwen/Qwen3-8B``.

    Raises:
        MissingDependencyError: If `huggingface_hub` is not installed.
        InvalidValueError: If there is no such repository, it is gated, it has no configuration, or
            neither network nor cache has it.
    """
    if READ_BELOW.get() is not None:
        _refuse(repo_id, "the name of a workload: nothing is fetched here")
    try:
        from huggingface_hub import errors
    except ImportError:
        raise MissingDependencyError("huggingface_hub", "hub") from None
    try:
        return _fetched(repo_id)
    except errors.GatedRepoError:
        _refuse(repo_id, "a repository that you may read", "Accept its terms, then hf auth login.")
    except errors.RepositoryNotFoundError:
        _refuse(repo_id, "a repository of the Hub", "Private ones need: hf auth login.")
    except errors.LocalEntryNotFoundError:
        remedy = "Give the folder of its config.json, or connect and ask again."
        _refuse(repo_id, "a repository in the cache, as the Hub does not answer", remedy)
    except errors.EntryNotFoundError:
        _refuse(repo_id, f"a repository with a {_FILES[0]}", "Name a file of it that you have.")
    except errors.HFValidationError:
        _refuse(repo_id, "an id of the Hub, as Qwen/Qwen3-8B")
    except Exception as error:  # noqa: BLE001  (its client of HTTP differs by version)
        _refuse(repo_id, f"a repository that can be fetched ({type(error).__name__})")


def _refuse(repo_id: str, allowed: str, remedy: str = "") -> NoReturn:
    raise InvalidValueError("hub", repo_id, allowed, remedy) from None


def _fetched(repo_id: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    is_offline = not _answers(repo_id)
    config = Path(hf_hub_download(repo_id, _FILES[0], local_files_only=is_offline))
    for name in _FILES[1:]:
        try:
            hf_hub_download(repo_id, name, local_files_only=is_offline)
        except EntryNotFoundError:  # most have one of them, or none
            continue
    return config.parent


def _answers(repo_id: str) -> bool:
    """Whether the Hub answers, asked once: downloads ask six times over half a minute."""
    from huggingface_hub import constants, get_session, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(hf_hub_url(repo_id, _FILES[0]), timeout=_LONGEST_S)
    except Exception:  # noqa: BLE001  (as above)
        return False
    return True
