"""From RDF with confidences to new links as RDF: read, train, predict, write what was found."""

from pathlib import Path

import focuse

PREFIXES = "@prefix : <http://example.org/> .\n"


def main() -> None:
    lines = [
        f":drug{i % 12} :treats :illness{(i * 5 + i // 12) % 9} {{| :confidence {0.2 + (i * 7 % 80) / 100:.2f} |}} ."
        for i in range(90)
    ]
    Path("drugs.ttl").write_text(PREFIXES + "\n".join(lines), encoding="utf-8")

    graph = focuse.read("drugs.ttl", short_names=True)
    print(graph, "weights from", graph.weight.min(), "to", graph.weight.max())
    run = focuse.train(graph, dim=8, epochs=20, duplicates="max", progress=False)
    found = run.predict(head="drug3", relation="treats", top=3)
    print(found)

    found.write("found.ttl")  # as statements about triples: guesses are spoken of, not stated
    again = focuse.read("found.ttl", weight_columns=["score"])
    print(again, "read back")


if __name__ == "__main__":
    main()
