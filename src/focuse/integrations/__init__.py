"""Other formats, libraries and tools. The core finds readers, writers and models only by the registrations below.

The modules named here are imported when a file of their format is read or written, or when their models are used.
"""

from focuse.data.readers import register_reader
from focuse.data.writers import register_writer

RDF_READ_SUFFIXES = (".nt", ".nq", ".ttl", ".trig", ".n3", ".rdf", ".owl", ".xml", ".jsonld")
RDF_WRITE_SUFFIXES = (".nt", ".nq", ".ttl", ".trig")

register_reader(RDF_READ_SUFFIXES, "focuse.integrations.rdf:read_rdf")
register_reader([".graphml"], "focuse.integrations.graphml:read_graphml")
register_reader([".json", ".jsonl", ".ndjson"], "focuse.integrations.records:read_json")
register_reader([".xlsx", ".xlsm"], "focuse.integrations.records:read_excel")
register_reader([".mtx"], "focuse.integrations.matrices:read_matrix_market")
register_reader([], "focuse.integrations.matrices:read_array", libraries=["numpy", "torch"])
register_reader([], "focuse.integrations.matrices:read_sparse", libraries=["scipy"])
register_reader([], "focuse.integrations.networks:read_networkx", libraries=["networkx"])
register_reader([], "focuse.integrations.networks:read_igraph", libraries=["igraph"])
register_reader([], "focuse.integrations.networks:read_pyg", libraries=["torch_geometric"])
register_writer(
    RDF_WRITE_SUFFIXES, graph="focuse.integrations.rdf:graph_pieces", links="focuse.integrations.rdf:link_pieces"
)
register_writer([".graphml"], graph="focuse.integrations.graphml:graph_pieces")

# Functions (name of a model) -> its class, by what the names of such models begin with, before a colon.
MODEL_FAMILIES = {"pykeen": "focuse.integrations.pykeen_models:interaction_model"}
