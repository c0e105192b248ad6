"""Import of MLModelScope manifests: text in, text and findings out; no file is touched."""
