"""The Helm charts in manifests/charts, made from the kustomize tree by `make manifests`.

One source: the files of manifests/base, scheduler, components and crds. `tree` reads them, with what each component changes; `sheet` writes an object as a
template, with places for values; `objects` knows which places those are; `rows` is the table of values, from which values.yaml and values.schema.json
are written; `karpenter` reads what becomes of each value of Karpenter's chart. What people write of a chart (Chart.yaml, NOTES.txt, _helpers.tpl) stays.
"""
