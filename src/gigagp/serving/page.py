"""A page on which a person can try the service: one field per column."""

from __future__ import annotations

from typing import Any

from gigagp.markup import tag

_SCRIPT = """
document.querySelector('form').addEventListener('submit', async event => {
  event.preventDefault();
  const row = {};
  for (const field of document.querySelectorAll('[data-column]'))
    row[field.dataset.column] = field.dataset.kind === 'number' ? Number(field.value) : field.value;
  const token = document.querySelector('#token').value;
  const headers = {'Content-Type': 'application/json', ...(token && {Authorization: 'Bearer ' + token})};
  const answer = await fetch('predict', {method: 'POST', headers, body: JSON.stringify({rows: [row]})});
  document.querySelector('output').textContent = JSON.stringify(await answer.json(), null, 1);
});
"""
_STYLE = (
    "body{font:16px sans-serif;max-width:40em;margin:2em auto}label{display:block;margin:.4em 0}output{white-space:pre}"
)


def page(schema: dict[str, Any]) -> str:
    """The page of a model with these columns."""
    fields = [
        tag(
            "label",
            f"{column['name']} ({column['kind']}) ",
            tag("input", data_column=column["name"], data_kind=_kind(column["kind"]), aria_label=column["name"]),
        )
        for column in schema["columns"]
    ]
    button = tag("button", "predict")
    token = tag("label", "token, if the service has one ", tag("input", id="token", type="password"))
    title = f"Predict {schema['target']}"
    body = tag("body", tag("h1", title), tag("form", *fields, token, button), tag("output", role="status"))
    head = f"<meta charset=utf-8><title>gigagp</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head>{body}<script>{_SCRIPT}</script></html>"


def _kind(kind: str) -> str:
    return "number" if kind not in ("category", "date", "timestamp") else "text"
