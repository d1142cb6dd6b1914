"""The paper's figures as experiments: each module has `run`, which computes, and `draw`, which only draws."""
