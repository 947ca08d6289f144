"""The explorer: a page in the browser over a model at work, forward and backward.

    offers.py      the models that the page may open
    state.py       what a page asks to see, as data: it travels in the address
    seen.py        a model, and a run of it as it was asked for
    explorer.py    models and runs, kept while they are asked about
    films.py       trainings frame by frame: of one that goes on here, or of a recorded run
    room.py        whether a run fits into the memory that is free
    tiles.py       parts of arrays in the resolution that a screen needs
    answers.py     the table of what a page may ask, filled by the files in answers_of
    readers.py     models that write, kept where they are in a text
    jobs.py        long work that shows how far it is and can be stopped
    guard.py       who may ask: this page and nobody else
    single.py      the modules of the page as one script, and the page as one file; keeping.py chooses what goes into it
    server.py      the application and the process that serves it
    page/          the page: plain ES modules, one for each view, joined when they are asked for

There is no mathematics here: everything that is shown comes from `interpret` and from the record of a run.
"""
