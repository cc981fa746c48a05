"""Training steps over many ranks as tasks of the engine: pipelines, sharded data parallelism."""
