"""What can be measured of single nodes, pods and objects, and which of their conditions changed?

Owns series that are written at the scrape, since too many would have to be kept between two, and events of conditions. Decides nothing, and writes
nothing but events.
"""
