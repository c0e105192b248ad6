"""Generation of manifests from files (``init``), with a TODO line for every open question."""
