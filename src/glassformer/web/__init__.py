"""The explorer: a page in the browser that shows a model at work, forward and backward.

    offers.py          the models that the page can open
    state.py           what the page shows, as data; the page keeps it in its address
    run_session.py     one run of a model, with what was computed about it
    explorer.py        caches of open models and their runs
    views.py           the views of the page, one record each
    tour_run.py        a run as tours read it; tour_facts.py has the facts, tours.toml the tours
    recordings.py      trainings frame by frame: live ones and recorded runs
    router.py          the table of requests, filled by the files in routes/
    writer.py          a model that writes with the changes of the page, and caches
    jobs.py            long work that reports progress and can be stopped
    page_export.py     the page as one file
    server.py          the HTTP application and the process that serves it
    page/              the page: plain ES modules, one for each view, joined by the server

There is no mathematics here: every number comes from `interpret` and from the record of a run.
"""
