"""Evidence of distributed trainings: metrics recomputed from the samples and the weights of every rank."""
