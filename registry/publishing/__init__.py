"""Publishing, export and garbage collection of versions, and their forms as bundles and OCI artifacts."""
