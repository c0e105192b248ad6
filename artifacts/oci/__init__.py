"""OCI registries: their references and documents, a client of their protocol, and a blob store over a repository."""
