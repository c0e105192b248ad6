"""Access control: tokens, scopes, the acting user, and the audit log."""
