"""Models at addresses such as s3://bucket/model: uploaded when they are saved, and downloaded once to be loaded.

A model is mapped into memory, so it has to be in a local folder; downloads are kept in a cache. S3 and the like cannot
rename a folder, so the manifest is written last: without it there is no model. While a model is being replaced, there
is no model at its address.
"""

from __future__ import annotations

import posixpath
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gigagp.data import folders
from gigagp.data.addresses import is_remote
from gigagp.data.leases import LEASES
from gigagp.data.objects import Listing, ObjectFolder, cache_folder
from gigagp.errors import InvalidInput, InvalidParameter
from gigagp.model.fingerprint import fingerprint
from gigagp.model.model_format import FILE_NAMES, MANIFEST, folder_path


def local_copy(address: str) -> Path:
    """The folder on this machine that a model was downloaded to; it is downloaded again if it has changed."""
    remote = ObjectFolder(address)
    with remote.errors("read", InvalidInput):
        files = remote.files()
        foreign = _foreign(files)
        if foreign:
            raise InvalidInput(f"{remote.name} contains something other than a gigagp model ({', '.join(foreign[:3])})")
        if MANIFEST not in files:
            raise InvalidInput(
                f"{remote.name} has no {MANIFEST}: no model was saved there, or its upload is not complete; save it "
                "again"
            )
        final = cache_folder() / "models" / fingerprint([remote.name, repr(sorted(files.items()))])
        if not final.is_dir():
            folders.remove_leftovers(final)
            _download(remote, files, final)
    return final


def _download(remote: ObjectFolder, files: Listing, final: Path) -> None:
    try:
        with folders.disk_errors(f"downloading {remote.name}", final.parent), folders.writing(final, False) as partial:
            folders.check_space(partial, sum(size for size, _ in files.values()), f"a copy of {remote.name}")
            for name in files:
                (partial / name).parent.mkdir(exist_ok=True)
                with (partial / name).open("wb") as file:
                    for chunk in remote.chunks(name):
                        file.write(chunk)
            with remote.errors("read", InvalidInput):
                same = remote.files() == files
            if not same or any((partial / name).stat().st_size != files[name][0] for name in files):
                raise InvalidInput(f"{remote.name} has changed while it was downloaded; load it again")
    except OSError:
        if not final.is_dir():  # otherwise another process has downloaded it meanwhile
            raise


@contextmanager
def uploading(address: str, overwrite: bool) -> Iterator[Path]:
    """A local folder whose content is uploaded to the address when it is complete."""
    remote = ObjectFolder(address)
    with remote.errors("write", InvalidParameter):
        check_remote(address, overwrite)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        yield folder
        with remote.errors("write", InvalidParameter):
            check_remote(address, overwrite)  # the fit, or writing, takes a while
            _upload(folder, remote)


def _upload(folder: Path, remote: ObjectFolder) -> None:
    """Copy the files, the manifest last; files of an earlier model are removed, its manifest first."""
    own = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    before = remote.files()
    for name in sorted(before, key=lambda name: (posixpath.basename(name) != MANIFEST, "/" in name)):
        if name not in own or posixpath.basename(name) == MANIFEST:
            remote.system.delete_file(remote.place(name))
    for name in sorted(own, key=lambda name: (posixpath.basename(name) == MANIFEST, "/" not in name)):
        remote.upload(name, folder / name)


def check_remote(address: str, overwrite: bool) -> None:
    """Raise InvalidParameter if a model must not, or cannot, be written to an address."""
    remote = ObjectFolder(address)
    with remote.errors("write", InvalidParameter):
        files = remote.files()
    foreign = _foreign(files)
    if foreign:
        raise InvalidParameter(
            f"{remote.name} contains something other than a gigagp model ({', '.join(foreign[:3])}); choose another "
            "address"
        )
    if MANIFEST in files and not overwrite:
        raise InvalidParameter(f"{remote.name} contains a model; pass overwrite=True, or choose another address")


def _foreign(files: Listing) -> list[str]:
    """Names that a saved model, of one target or of several, would not have."""

    def known(name: str) -> bool:
        target, _, file = name.rpartition("/")
        return file in FILE_NAMES and (not target or target.isdecimal())

    return sorted(name for name in files if not known(name))


def refuse_remote(name: str, folder: Any) -> None:
    """Raise InvalidParameter for a folder at an address, where files are mapped or locked."""
    if is_remote(folder):
        raise InvalidParameter(
            f"{name} must be a folder on this machine, because its files are mapped into memory; got {folder}"
        )


def check_fit_folders(store: Any, checkpoint: Any) -> None:
    """Raise InvalidParameter if both folders of a fit are given, or one is at an address that cannot be read."""
    if store is not None and checkpoint is not None:
        raise InvalidParameter("pass store= or checkpoint=, not both: a checkpoint contains its own store")
    for address in (store, checkpoint):
        if is_remote(address):
            folder = ObjectFolder(address).below(LEASES)
            with folder.errors("read", InvalidParameter):
                folder.files()
        elif address is not None:
            folder_path(address)
