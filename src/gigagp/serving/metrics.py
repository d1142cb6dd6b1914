"""Counts and durations of requests, in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import Counter

_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)  # seconds


class Metrics:
    """May be used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()

    def add(self, path: str, status: int, seconds: float) -> None:
        """One request that has been answered."""
        with self._lock:
            self._requests[path, status] += 1
            buckets = self._buckets.setdefault(path, [0] * (len(_BOUNDS) + 1))
            buckets[sum(seconds > bound for bound in _BOUNDS)] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]

    def add_rows(self, kind: str, rows: int) -> None:
        """Rows that were predicted or learnt."""
        with self._lock:
            self._rows[kind] += rows

    def text(self, model_rows: int) -> str:
        with self._lock:
            lines = ["# TYPE gigagp_requests_total counter"]
            lines += [
                f'gigagp_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self._requests.items())
            ]
            lines.append("# TYPE gigagp_request_seconds histogram")
            for path, buckets in sorted(self._buckets.items()):
                total = 0
                for bound, count in zip([*map(str, _BOUNDS), "+Inf"], buckets, strict=True):
                    total += count
                    lines.append(f'gigagp_request_seconds_bucket{{path="{path}",le="{bound}"}} {total}')
                lines.append(f'gigagp_request_seconds_sum{{path="{path}"}} {self._seconds[path]:.6f}')
                lines.append(f'gigagp_request_seconds_count{{path="{path}"}} {total}')
            lines.append("# TYPE gigagp_rows_total counter")
            lines += [f'gigagp_rows_total{{kind="{kind}"}} {count}' for kind, count in sorted(self._rows.items())]
            lines += ["# TYPE gigagp_model_rows gauge", f"gigagp_model_rows {model_rows}"]
        return "\n".join(lines) + "\n"
