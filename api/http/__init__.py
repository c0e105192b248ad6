"""The registry as a service: an application over the rooms below, and the server that runs it."""
