"""What can be measured of single nodes, pods, objects and gangs, and which of their conditions changed?

Owns series that are written at the scrape, since too many would have to be kept between two, those of gangs, and events of conditions and of gangs
that lack pods. Decides nothing, and writes nothing but events.
"""
