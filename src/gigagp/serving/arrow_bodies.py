"""Bodies of requests in the streaming format of Arrow, which are read only if they do not become large in memory.

A few KB may be compressed from GBs, and one long text may be the value of every row: in a dictionary, or in views.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from gigagp.serving.limits import LONGEST_TEXT, Limits, Problem

_BAD, _UNPROCESSABLE, _TOO_LARGE = 400, 422, 413

# Places of fields in the tables of Arrow's metadata (format/Message.fbs).
_HEADER_OF_MESSAGE = 2
_BATCH_OF_DICTIONARY = 1
_BUFFERS_OF_BATCH = 2
_COMPRESSION_OF_BATCH = 3


def read_table(body: bytes, limits: Limits) -> Any:
    """The table of a body, with as many rows and bytes as a request may have."""
    try:
        size = sum(map(_expanded_bytes, pa.ipc.MessageReader.open_stream(body)))
        if size > limits.body:
            raise Problem(_TOO_LARGE, "Body too large", f"a body may have {limits.body:,} bytes after decompression")
        with pa.ipc.open_stream(body) as stream:
            table = stream.read_all()
        table.validate()  # sizes of buffers only; what follows may depend on the number of rows
        if not 0 < len(table) <= limits.rows:
            detail = f"a request may have 1 to {limits.rows} rows; got {len(table)}"
            raise Problem(_TOO_LARGE, "Wrong number of rows", detail)
        for name, column in zip(table.column_names, table.columns, strict=True):
            if any(_longest_text(chunk) > LONGEST_TEXT for chunk in column.chunks):
                detail = f"column {name[:200]!r} has a text of more than {LONGEST_TEXT:,} bytes"
                raise Problem(_UNPROCESSABLE, "Wrong value", detail, column=name[:200])
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, EOFError, struct.error) as error:
        raise Problem(_BAD, "Not Arrow", f"the body is not an Arrow stream: {str(error)[:200]}") from None
    return table


def _expanded_bytes(message: Any) -> int:
    """Bytes of the buffers of a message when they are decompressed: as many as Arrow allocates to read them.

    Each compressed buffer begins with that number, or with -1 if it is not compressed after all.
    """
    if message.type not in ("record batch", "dictionary"):
        return 0
    metadata, body = memoryview(message.metadata), memoryview(message.body)
    batch = _follow(metadata, _field(metadata, _follow(metadata, 0), _HEADER_OF_MESSAGE))
    if message.type == "dictionary":
        batch = _follow(metadata, _field(metadata, batch, _BATCH_OF_DICTIONARY))
    if not _field(metadata, batch, _COMPRESSION_OF_BATCH):
        return len(body)
    buffers, total = _follow(metadata, _field(metadata, batch, _BUFFERS_OF_BATCH)), 0
    (count,) = struct.unpack_from("<I", metadata, buffers)
    for number in range(count):
        start, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * number)
        if length:
            (size,) = struct.unpack_from("<q", body, start)
            total += max(size, length)
    return total


def _field(metadata: memoryview, table: int, number: int) -> int:
    """Where a field of a table of FlatBuffers is; 0 if the table does not have it."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    (size,) = struct.unpack_from("<H", metadata, vtable)
    place = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", metadata, vtable + place) if place < size else (0,)
    return int(table + offset) if offset else 0


def _follow(metadata: memoryview, place: int) -> int:
    """Where the table or vector is to which a place refers; the place 0 refers to the table of the message."""
    return place + int(struct.unpack_from("<I", metadata, place)[0])


def _longest_text(values: Any) -> int:
    """Bytes of the longest text in an array; 0 if it has none."""
    if types.is_dictionary(values.type):
        return _longest_text(values.dictionary)
    if types.is_string_view(values.type):  # each view is four integers, the first of which is its length
        lengths = np.frombuffer(values.buffers()[1], np.int32)[::4][values.offset : values.offset + len(values)]
        return int(lengths.max(initial=0))
    if types.is_string(values.type) or types.is_large_string(values.type):
        return pc.max(pc.binary_length(values)).as_py() or 0
    return 0
