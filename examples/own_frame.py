"""From a pandas frame to ranked suggestions, with weights in a unit of your own."""

import pandas as pd

import focuse


def main() -> None:
    purchases = pd.DataFrame(
        {
            "customer": [f"customer {i % 40}" for i in range(400)],
            "action": ["buys" if i % 3 else "returns" for i in range(400)],
            "product": [f"product {(i * 7 + i % 40) % 25}" for i in range(400)],
            "euros": [float(5 + (i * 13) % 90) for i in range(400)],
        }
    )
    graph = focuse.read(purchases, columns=["customer", "action", "product", "euros"])
    run = focuse.train(graph, model="distmult", dim=16, epochs=10, duplicates="max", progress=False)
    print(run.predict(head="customer 3", relation="buys", top=5, new_only=True))


if __name__ == "__main__":
    main()
