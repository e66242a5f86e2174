"""Faults of every kind, one after another, under a steady churn of pods; and what must hold all the same.

`make chaos` runs it for ten minutes on kwok and as long on the emulated EC2; tests/integration/test_chaos.py for two
minutes in all. The same seed gives the same faults in the same order; what they meet differs with the machine's speed.

    stage    a control plane with an audit log, our programs behind proxies, a supervisor that restarts what died
    churn    Deployments whose replicas change all the time
    gangs    gangs that come and go as a whole, and who counts each second the instances that are there for a part of one
    faults   the table of faults: what begins, what ends
    verdict  what is written down meanwhile, and what must be true in the end
"""
