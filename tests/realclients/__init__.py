"""The real agent clients as the judge of sessiond: they run scripted sessions against a mock of the model APIs on
loopback, the real daemon watches, and what it stored is held against what the mock served.

    run.py        the target: options, one client after the other, the exit code
    install.py    the clients by package name into a scratch folder
    isolation.py  a network of loopback alone, an environment built from nothing, nothing left running
    clients/      one file per client: how it is installed, configured and called
    scenarios.py  what is asked of each client
    mock/         the model APIs, answering from scripts and keeping a ledger of what they served
    session.py    one scenario of one client, from the first prompt to the resume after a restore
    visibility.py how long a client's write takes to be in the store
    judge.py      what should be in the store, and what is; pure
    report.py     the tables
"""
