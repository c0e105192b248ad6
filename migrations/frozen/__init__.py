"""What revisions are made of, copied: a revision does the same for ever, whatever the modules of the registry become.

Nothing here imports benchlock, but for RFC 8785 (``artifacts.canonical``), and nothing here changes once a revision
uses it. A new revision that needs something else adds it beside what is here.
"""
