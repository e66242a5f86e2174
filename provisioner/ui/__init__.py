"""What is there now: the live page of nodes, what runs on them, and what waits.

Owns the page as a value, made of one instant (`why.instant`) or of a record's end, for what a viewer may see, with what `history` tells of the past, the
leader's viewers, and the page's document. `cli.ui` serves it
to a browser. Asks `why` for its sentences; decides and changes nothing.

Everything of a page is bounded: `encoded` leaves out names, then pods, then nodes, and says so, rather than send more than `MOST_BYTES`.
"""
