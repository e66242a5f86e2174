"""Why a pod has no node and why a node stays: the answers, from whatever an instant of the cluster was made of, and how the leader gives them."""
