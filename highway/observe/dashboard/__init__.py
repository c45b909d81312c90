"""The dashboard: one page for a browser that shows a whole run.

``document`` returns the current content of the page. ``history`` keeps the statistics of the last hour. ``looking`` takes batches to show.
``site`` answers requests. ``local`` serves the page for pipelines of this process. ``page`` has the files for the browser. Begin with
``document``.
"""
