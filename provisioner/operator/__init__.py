"""The process around the controllers: which replica leads, what a term is made of, and its servers.

Owns leadership, the parts of a term and how they are started and stopped, kwok as a cloud, the certificates of others, and the server for reports. Decides
nothing about pods and nodes.
"""
