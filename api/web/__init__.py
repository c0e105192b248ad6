"""Web pages: what the service shows in a browser, as functions from records to HTML. They know nothing of HTTP."""
