"""The options of `gigagp fit`."""

from __future__ import annotations

from typing import Annotated

import typer

KERNELS = (
    "squared-exponential", "matern12", "matern32", "matern52", "rational-quadratic", "periodic", "linear", "constant",
)  # fmt: skip

Target = Annotated[
    list[str],
    typer.Option("--target", "-t", help="Column to predict; several columns: a,b or repeated.", show_default=False),
]
Output = Annotated[str, typer.Option("--output", "-o", help="Folder for the model.", show_default=False)]
Task = Annotated[
    str,
    typer.Option(help="regress: predict a number; classify: predict a class; auto: classify text and true or false."),
]
Features = Annotated[
    list[str] | None, typer.Option(help="Columns to learn from: a,b or repeated. [default: all others]")
]
Drop = Annotated[list[str] | None, typer.Option(help="Columns that are not used: a,b or repeated.")]
Categorical = Annotated[
    list[str] | None, typer.Option(help="Columns of numbers that are categories, as text always is: a,b or repeated.")
]
KernelName = Annotated[
    str,
    typer.Option(
        help=f"auto: the kernel that best predicts held-out rows; {', '.join(KERNELS)}; "
        "or a combination of these with + and *, with arguments in the units of the data, such as "
        '"periodic(period=24, columns=hour) + matern32".'
    ),
]
Partition = Annotated[str, typer.Option(help="How rows are divided among experts: local, stratified or random.")]
LeafSize = Annotated[int | None, typer.Option(help="Rows per leaf. [default: 256 for local, 512 for others]")]
Levels = Annotated[int | None, typer.Option(help="Levels of the tree, instead of --leaf-size.", show_default=False)]
Branching = Annotated[
    int | None, typer.Option(help="With --levels: children per node. [default: 4]", show_default=False)
]
Sharing = Annotated[
    float | None, typer.Option(help="Number of experts that use each row. [default: chosen for local, 1 for others]")
]
Combine = Annotated[
    str,
    typer.Option(
        help="Rule that combines the experts' predictions: auto, healed_blend, blend, healed, gpoe, poe, bcm, rbcm, "
        "grbcm, barycentre or npae."
    ),
]
ExpertsPerQuery = Annotated[str, typer.Option(help="Number of experts that predict a query: auto, all, or a number.")]
Experts = Annotated[
    str, typer.Option(help="gaussian: the same variances for all experts; student: one scale per expert; or auto.")
]
Leaf = Annotated[
    str, typer.Option(help="exact: an exact GP per leaf; sparse: inducing points, for leaves of thousands of rows.")
]
Inducing = Annotated[int, typer.Option(help="With --leaf sparse: inducing points per leaf.")]
Method = Annotated[
    str, typer.Option(help="Prediction by the nearest rows (neighbourhood), by the experts (committee), or auto.")
]
Neighbours = Annotated[str, typer.Option(help="Training rows from which a query is predicted: auto or a number.")]
ExactNeighbours = Annotated[bool, typer.Option(help="Search until the nearest rows are certain to be found.")]
Calibrate = Annotated[bool, typer.Option(help="Learn the distribution of errors from held-out rows.")]
Training = Annotated[
    str, typer.Option(help="full: all experts at every step; progressive: growing batches of experts; or auto.")
]
Noise = Annotated[
    str | None,
    typer.Option(
        help="Noise variance as a share of the target's variance: 0.01 fixes it, 1e-6,10 are bounds. [default: 1e-6,10]"
    ),
]
LearnNoise = Annotated[bool, typer.Option(help="Learn a noise variance besides the known noise of --noise-column.")]
NoiseModel = Annotated[
    str, typer.Option(help="constant: the same noise everywhere; inputs: noise that depends on the inputs; or auto.")
]
Mean = Annotated[str, typer.Option(help="The mean function: constant, or linear in the columns that are numbers.")]
LikelihoodName = Annotated[
    str,
    typer.Option(
        help="Distribution of the target: poisson or negative_binomial for counts, gamma for positive numbers, "
        "bernoulli for 0 and 1 or shares; gaussian or student for other numbers; or auto."
    ),
]
Targets = Annotated[
    str,
    typer.Option(
        help="With several targets: separate, each as if it were alone; shared, one theta for all, in about the time "
        "of one; auto: whichever predicts better."
    ),
]
Restarts = Annotated[int, typer.Option(help="Additional starting points of the training.")]
Standardize = Annotated[
    bool, typer.Option(help="Scale inputs and target to mean 0 and standard deviation 1 internally.")
]
Warp = Annotated[
    str,
    typer.Option(
        help="yes to replace skewed or long-tailed columns by their normal scores; no; auto: yes for classes; "
        "for numbers in small tables if held-out rows are predicted better; no if --kernel is given."
    ),
]
Directions = Annotated[
    bool,
    typer.Option(
        help="Linear combinations of columns may take their places, in tables of at most 262,144 rows, if held-out "
        "rows are then predicted better; not in small tables, and not if --kernel is given."
    ),
]
Sphere = Annotated[
    str,
    typer.Option(
        help="Columns of longitude and latitude, such as lon,lat, which are places on a sphere; auto: recognised by "
        "name and values; none: no such columns."
    ),
]
Dtype = Annotated[str, typer.Option(help="Floating-point precision: float64 or float32.")]
Store = Annotated[
    str | None,
    typer.Option(
        help="Folder, or address such as s3://bucket/folder, for sorted rows that exceed the memory budget. "
        "[default: a temporary folder]"
    ),
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        help="Folder, or address such as s3://bucket/folder, for progress; the same command continues an interrupted "
        "fit."
    ),
]
TestFraction = Annotated[
    float | None, typer.Option(help="Share of the rows that is held out and scored after the fit.")
]
