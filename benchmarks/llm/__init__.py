"""Language models: time and memory of a step, quality after training, and gradients."""
