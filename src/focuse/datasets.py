"""The benchmark graphs of the literature by name.

>>> import focuse
>>> focuse.datasets.names()
['ppi5k', 'nl27k', 'cn15k', 'onet20k', 'onet-importance']
>>> graphs = focuse.datasets.load("ppi5k")  # doctest: +SKIP
"""

from focuse.data.datasets import Dataset, fetch, load, names, path

__all__ = ["Dataset", "fetch", "load", "names", "path"]
