"""One page for a browser that shows a whole run.

``document`` is the content of the page at a moment, ``history`` keeps the last hour, ``looking`` takes batches to show, ``site``
answers requests, ``local`` serves the page for pipelines of this process. ``page`` holds the files for the browser, without a build step.
Begin with ``document``.
"""
