"""Where replicas come from: one file per source, each publishing the full list of what it knows whenever it changes.

`registry` gives every registration an id of its own and turns lists into what was added and removed; `validate` says
which URLs may be replicas at all. Sources are strangers to each other and to observation: how an engine is detected is
handed to them.
"""
