"""The one way to AWS: client with token buckets, retries and metrics; many callers, one call (`batcher.py`); errors; every permission with its reason."""
