// Stable sorting of entries by id, all threads at once: work grows with the entries, never with the table.
#pragma once

#include <barrier>
#include <utility>

#include "common.hpp"

struct Ids {
    const int64_t* ids;
    uint32_t operator[](int64_t entry) const { return ids[entry]; }
};

constexpr int DIGIT = 15;  // bits at a time, at most: their counts still lie in a core's own cache

// Radix sort, lowest digits first. After `sort`, `keys` and `order` hold ids and entries.
template <class Source>
struct Sorter {
    const Source& source;
    const int64_t entries;
    const int threads;
    uint32_t *keys, *order, *other_keys, *other_order;
    int bits, passes;
    std::vector<uint32_t> places;  // [threads, digits]

    Sorter(const Source& of, int64_t count, int64_t ids, int workers, uint32_t* room)
        : source(of), entries(count), threads(workers), keys(room), order(room + count), other_keys(room + 2 * count),
          other_order(room + 3 * count) {
        const int needed = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(ids - 1, 1)));
        passes = (needed + DIGIT - 1) / DIGIT;
        bits = (needed + passes - 1) / passes;
        places.resize(static_cast<size_t>(threads) << bits);
    }

    void sort(int thread, std::barrier<>& together) {
        for (int pass = 0; pass < passes; ++pass) {
            const int shift = pass * bits;
            const uint32_t lowest = (1u << bits) - 1;
            const int64_t from = part(entries, thread, threads), to = part(entries, thread + 1, threads);
            uint32_t* count = places.data() + (static_cast<size_t>(thread) << bits);
            std::fill_n(count, lowest + 1, 0u);
            for (int64_t i = from; i < to; ++i) ++count[(key(pass, i) >> shift) & lowest];
            together.arrive_and_wait();
            if (thread == 0) accumulate();
            together.arrive_and_wait();
            for (int64_t i = from; i < to; ++i) {
                const uint32_t id = key(pass, i), place = count[(id >> shift) & lowest]++;
                other_keys[place] = id;
                other_order[place] = pass ? order[i] : static_cast<uint32_t>(i);
            }
            together.arrive_and_wait();
            if (thread == 0) {
                std::swap(keys, other_keys);
                std::swap(order, other_order);
            }
            together.arrive_and_wait();
        }
    }

  private:
    uint32_t key(int pass, int64_t i) const { return pass ? keys[i] : source[i]; }

    void accumulate() {
        uint32_t total = 0;
        for (int64_t digit = 0; digit < int64_t{1} << bits; ++digit)
            for (int thread = 0; thread < threads; ++thread) {
                uint32_t& place = places[(static_cast<size_t>(thread) << bits) + digit];
                total += std::exchange(place, total);
            }
    }
};
