"""The routes of the service, one module per resource, and the application that serves them."""
