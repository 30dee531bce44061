"""The benchmark graphs of the literature by name.

>>> import focuse
>>> focuse.datasets.names()
['ppi5k', 'nl27k', 'cn15k', 'onet20k', 'onet-importance']
>>> graphs = focuse.datasets.load("ppi5k")  # doctest: +SKIP
"""

from focuse.graph.datasets import DataSet, fetch, load, names, path

__all__ = ["DataSet", "fetch", "load", "names", "path"]
