"""The controllers of Karpenter's API, whatever the cloud."""
