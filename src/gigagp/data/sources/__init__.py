"""Sources of rows: arrays, tables, .npy, Parquet, CSV. pyarrow is imported only where it is needed."""

from gigagp.data.sources.base import Source
from gigagp.data.sources.encoding import Encoding, Feature
from gigagp.data.sources.opening import open_source
from gigagp.data.sources.rows import Block, Rows
from gigagp.data.sources.selection import open_rows
from gigagp.data.sources.share import Share

__all__ = ["Block", "Encoding", "Feature", "Rows", "Share", "Source", "open_rows", "open_source"]
