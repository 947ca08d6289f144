"""The explorer: a page in the browser that shows a model at work, forward and backward.

    offers.py          the models that the page can open
    state.py           what the page shows, as data; the page keeps it in its address
    run_session.py     one run of a model, with what was computed about it
    explorer.py        caches of open models and their runs
    recordings.py      trainings frame by frame: live ones and recorded runs
    router.py          the table of requests, filled by the files in routes/
    writer.py          what writes token by token: the changes of the page, and caches
    jobs.py            long work that reports progress and can be stopped
    page_export.py     the page as one file
    server.py          the HTTP application and the process that serves it
    page/              the page: plain ES modules, one for each view, joined by the server

There is no mathematics here: every number comes from `interpret` and from the record of a run.
"""
