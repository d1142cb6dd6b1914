"""An expert store at an address: each bucket is one object per file, and this machine has a copy that is mapped.

The copy is filled bucket by bucket, and has the same bytes as a store that was never anywhere else. The manifest is
written last: without it there is no store at the address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gigagp.arrays import Array
from gigagp.data import folders
from gigagp.data.mirrors import Mirror
from gigagp.data.object_files import FileCopy, PartIndex, RemoteFile, changed, checksum, part_name, read_part
from gigagp.data.objects import ObjectFolder
from gigagp.data.store import FORMAT, MANIFEST, VERSION, StorePlaces
from gigagp.engines import Engine
from gigagp.fit.bucket_runs import ObjectRuns
from gigagp.linalg.workspace import Workspace


@dataclass(frozen=True)
class ObjectPlaces:
    """The files of a store that is being written, as objects: a value that can be sent to other processes."""

    local: StorePlaces
    folder: ObjectFolder
    here: bool  # whether the files are written too, by processes of this machine

    def write(self, first: int, X: Array, targets: Array) -> list[bytes]:
        """Write rows from number `first` on; returns their checksums, one per file."""
        checksums = []
        for file, array in zip(self.local.files, self.local.arrays(X, targets), strict=True):
            raw = file.raw(array)
            self.folder.put(part_name(Path(file.path).name, file.place(first)), raw)
            if self.here:
                file.fill(first, raw)
            checksums.append(checksum(raw))
        return checksums


@dataclass(frozen=True)
class _CopyBucket:
    """Copies the rows of a bucket from its objects to the files of this machine."""

    local: StorePlaces
    folder: ObjectFolder
    name = "copy"

    def __call__(self, bucket: tuple[int, list[bytes]], work: Workspace) -> list[bytes]:
        first, checksums = bucket
        for file, expected in zip(self.local.files, checksums, strict=True):
            name = part_name(Path(file.path).name, file.place(first))
            file.fill(first, memoryview(read_part(self.folder, name, expected)))
        return checksums


class StoreObjects:
    """A store at an address.

    mirror : the folder of this machine with its copy
    parent : where the store is
    """

    def __init__(self, mirror: Mirror, parent: ObjectFolder, name: str = "store") -> None:
        self.mirror, self._parent = mirror, parent
        self._folder, self.runs = parent.below(name), ObjectRuns(parent.below(".buckets"))

    def named(self, name: str) -> StoreObjects:
        """Another store beside this one."""
        return StoreObjects(self.mirror, self._parent, name)

    def places(self, local: StorePlaces, here: bool) -> ObjectPlaces:
        return ObjectPlaces(local, self._folder, here)

    def copied(
        self, local: StorePlaces, firsts: list[int], written: Iterable[list[bytes]], engine: Engine
    ) -> Iterator[list[bytes]]:
        """The checksums of the buckets that have been written, which are copied to the files of this machine.

        firsts : the first row of each bucket
        engine : of this process
        """
        return engine.map(_CopyBucket(local, self._folder), zip(firsts, written, strict=True))

    def publish(self, store: Path, local: StorePlaces, ends: list[int], checksums: list[list[bytes]]) -> None:
        """Complete the store: the indices of the files of rows, the other files, and the manifest."""
        names = []
        for file, of_file in zip(local.files, zip(*checksums, strict=True), strict=True):
            names.append(Path(file.path).name)
            index = PartIndex(file.header, tuple(file.place(end) for end in ends), tuple(of_file))
            self.mirror.add(store / names[-1], RemoteFile.publish(self._folder, names[-1], index))
        for path in sorted(store.glob("*.npy")):
            if path.name not in names:
                self.mirror.add(path, RemoteFile.upload(self._folder, path.name, path))
        self._folder.put(MANIFEST, (store / MANIFEST).read_bytes())

    def download(self, store: Path) -> None:
        """Copy the store to this machine, if it is complete; `open_store` compares it with its manifest."""
        manifest = self._folder.get(MANIFEST)
        if manifest is None:
            return
        files: dict[str, RemoteFile] = {}
        with folders.disk_errors(f"copying {self._folder.name}", store.parent), folders.writing(store) as folder:
            (folder / MANIFEST).write_bytes(manifest)
            content = folders.read_manifest(folder / MANIFEST, FORMAT, VERSION)
            for name in content.get("files", ()):
                if "/" in name or not name.endswith(".npy"):
                    raise changed(self._folder, MANIFEST, "has changed")
                files[name] = RemoteFile.at(self._folder, name)
                FileCopy(files[name], folder / name).filled(None)
        for name, file in files.items():
            self.mirror.add(store / name, file)
