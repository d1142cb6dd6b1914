"""A page on which a person can try the service: one field per column, with a typical value in each."""

from __future__ import annotations

from typing import Any

from gigagp.markup import Html, tag

_MOST_LISTED = 200  # levels of a category

_SCRIPT = """
const output = document.querySelector('output');
document.querySelector('form').addEventListener('submit', async event => {
  event.preventDefault();
  const row = {};
  for (const field of document.querySelectorAll('[data-column]')) {
    const number = field.dataset.kind === 'number' && field.value.trim() !== '' && isFinite(field.value);
    row[field.dataset.column] = field.value === '' ? null : number ? Number(field.value) : field.value;
  }
  const token = document.querySelector('#token').value;
  const headers = {'Content-Type': 'application/json', ...(token && {Authorization: 'Bearer ' + token})};
  const request = {rows: [row], quantiles: [0.025, 0.975]};
  try {
    const answer = await fetch('predict', {method: 'POST', headers, body: JSON.stringify(request)});
    const content = await answer.json();
    const shown = name => Number(content[name][0].toPrecision(6));
    output.className = answer.ok ? '' : 'problem';
    output.textContent = answer.ok
      ? 'mean: ' + shown('mean') + '\\nstandard deviation: ' + shown('std')
        + '\\n95% interval: ' + shown('q0.025') + ' to ' + shown('q0.975')
      : content.title + ': ' + content.detail;
  } catch (error) {
    output.className = 'problem';
    output.textContent = 'The service does not answer.';
  }
});
"""
_STYLE = (
    "body{font:16px sans-serif;max-width:40em;margin:2em auto;padding:0 1em}"
    "label{display:grid;grid-template-columns:14em 1fr;gap:1em;margin:.4em 0;align-items:center}"
    "input,select,button{font:inherit;padding:.3em .5em}button{margin:1em 0}"
    "output{display:block;white-space:pre-wrap;font:16px monospace}.problem{color:#a00000}"
)


def page(schema: dict[str, Any], typical: dict[str, Any]) -> str:
    """The page of a model with these columns; typical : a value of each."""
    fields = [
        tag("label", f"{column['name']} ({column['kind']})", _field(column, typical[column["name"]]))
        for column in schema["columns"]
    ]
    button = tag("button", "predict")
    token = tag("label", "token, if needed", tag("input", id="token", type="password"))
    title = f"Predict {schema['target']}"
    body = tag("body", tag("h1", title), tag("form", *fields, token, button), tag("output", role="status"))
    head = f"<meta charset=utf-8><title>gigagp</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang=en><head>{head}</head>{body}<script>{_SCRIPT}</script></html>"


def _field(column: dict[str, Any], value: Any) -> Html:
    """A field of a form with a value in it; a list of the levels of a category, unless these are many."""
    attributes = {"data_column": column["name"], "data_kind": _kind(column["kind"]), "aria_label": column["name"]}
    levels = column.get("levels", ())
    if not 0 < len(levels) <= _MOST_LISTED:
        return tag("input", **attributes, value=value)
    chosen = {level: {"selected": "selected"} if level == value else {} for level in levels}
    return tag("select", *(tag("option", level, value=level, **chosen[level]) for level in levels), **attributes)


def _kind(kind: str) -> str:
    return "number" if kind not in ("category", "date", "timestamp") else "text"
