"""What a run knows beyond single questions: missing links of a whole graph, entities alike, groups, analogies."""
