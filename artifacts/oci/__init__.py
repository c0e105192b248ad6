"""OCI registries: references, documents, images, and a client of the distribution protocol."""
