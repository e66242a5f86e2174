"""The controllers that only EC2 needs."""
