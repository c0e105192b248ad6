"""The doors: the command line, and the one module that builds what it hands to the rooms below."""
