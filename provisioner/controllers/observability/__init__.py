"""Metrics of single nodes, pods and objects, written when somebody asks: too many series to be kept between two scrapes."""
