"""Request and response bodies of the HTTP API, used by the server and its clients."""
