"""The figures of docs/how-it-works.md, drawn by the code they explain: `python docs/figures/draw.py`."""

from pathlib import Path

from gigagp.paper import blocks, depth, groups

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    for figure in (blocks, groups, depth):
        name = figure.__name__.rpartition(".")[2]
        figure.draw(figure.run(), HERE / f"{name}.png")
        print(f"docs/figures/{name}.png", flush=True)
