"""What users of Karpenter expect of disruption, of the admission of pods and of old manifests, a row each, on a real control plane.

Nodes are kwok's; rows about old manifests, about reservations and about what only AWS repairs have those of the emulated EC2. Which spec of Karpenter's
new suites has which row: tests/data/karpenter-1.15-specs.txt.

A row is data: objects to apply, acts, and what `kubectl` has to show then. `steps` has the words, `stage` runs rows side by side, and the tables are
the other modules; tests/integration/test_scenarios.py asks for each row.
"""
