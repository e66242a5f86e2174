"""The one way to AWS: client, rate limits, batcher, errors, permissions."""
