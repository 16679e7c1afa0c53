"""The training loop behind `Trainer.fit`: data, events, rates, history, and exact resuming."""
