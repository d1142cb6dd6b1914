"""The figures of docs/how-it-works.md, drawn by the code they explain: `python docs/figures/draw.py`."""

from pathlib import Path

from gigagp.paper import blocks, depth, groups

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    for name, draw in (
        ("blocks", lambda path: blocks.draw(blocks.blocks(), path)),
        ("groups", lambda path: groups.draw(groups.run(), path)),
        ("depth", lambda path: depth.draw(depth.panels(), path)),
    ):
        draw(HERE / f"{name}.png")
        print(f"docs/figures/{name}.png", flush=True)
