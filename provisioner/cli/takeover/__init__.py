"""`dovetail takeover`: from Karpenter or Cluster Autoscaler to Dovetail, and back, step by step."""
