"""Python starts with this file where its folder is on PYTHONPATH: GigaGP then generates the code of AVX-512 machines.

Numba still compiles for a CPU with AVX2, for which LLVM divides vectors of 64 bytes in two, so that the code runs
anywhere: its tiles, masks and loops are those of an AVX-512 machine; only the choice of instructions is not.
"""

import sys
from importlib.machinery import PathFinder, SourceFileLoader


class _WideVectors(SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        module.AVX512, module.VECTOR_BYTES = True, 64


class _Finder:
    @staticmethod
    def find_spec(name, path, target=None):
        if name != "gigagp.linalg.vectors":
            return None
        spec = PathFinder.find_spec(name, path)
        spec.loader = _WideVectors(name, spec.origin)
        return spec


sys.meta_path.insert(0, _Finder)
