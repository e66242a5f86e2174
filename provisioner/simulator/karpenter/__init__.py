"""What would Karpenter do? Its rules as a second policy, beside which a day is simulated.

Owns Karpenter's answers, where they differ from ours: `provision` (which nodes it makes for pods that wait), `disrupt` (which of its nodes go, one
command after another), `still_holds` (whether it would carry a command out 15 s later) and `KarpenterLoop` (when it does which). What a pod may run on,
what a node may become, which nodes may be disrupted and what a replacement may cost is asked of `scheduling` and `disruption`; where Karpenter's answer
is another one, the docstring says "Differs". Pure without exception; knows nothing of the simulation.

Source: karpenter at 226646810, as core spec 3-6 tells it; where nothing else is said, section numbers are of that.
"""
