"""Who may do what: tokens with scopes, the log of who did what, and what a server asks of a request."""
