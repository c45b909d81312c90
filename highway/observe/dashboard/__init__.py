"""One page for a browser that shows a whole run.

``document`` says what the page shows at a moment, ``history`` keeps the last hour, ``looking`` gets batches to look at, ``site`` answers
requests, ``local`` serves the page for pipelines of this process. What the browser gets is in ``page``: files as they are, without a build.
Begin with ``document``.
"""
