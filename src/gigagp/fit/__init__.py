"""From rows to a fitted model: settings, plan, stages, theta, model selection, checkpoints."""
