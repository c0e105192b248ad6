"""The implementations of ``BlobStore``: local folder, cache, OCI repository, benchlock server, temporary stores."""
