"""From a model and a dataset to a run: manifests, request, image, publication, lock."""
