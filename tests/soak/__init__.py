"""Whether the programs keep more and more: an hour of pods that come and go under mild faults, and four weeks in virtual time.

`make soak` runs both. The hour is chaos's stage, churn and faults (tests/chaos), with nothing that ends a program of ours: what one keeps could not be
compared. The weeks are `dovetail simulate` in one process.

    laws      what may grow, and by how much: pure
    load      pods at a rate, and workloads of names that never come again
    counted   the provisioner, and beside it a thread that counts what is in its memory
    looking   what is read of each program every 15 s
    hour      the hour
    weeks     the weeks
"""
