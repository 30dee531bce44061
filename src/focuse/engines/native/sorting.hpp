// Stable sorting of entries by id, all threads at once: work grows with the entries, never with the table.
#pragma once

#include <barrier>
#include <utility>

#include "common.hpp"

constexpr int DIGIT = 15;  // bits at a time, at most: their counts still lie in a core's own cache

// Radix sort, lowest digits first, of source[entry] for all entries.
template <class Source>
struct Sorter {
    const Source& source;
    const int64_t entries;
    const int threads;
    uint32_t *keys, *order, *other_keys, *other_order;  // ids and entries between two passes
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

    // put(place, id, entry) for each, in no order.
    template <class Put>
    void sort(int thread, std::barrier<>& together, Put put) {
        for (int pass = 0; pass < passes; ++pass) {
            count(thread, pass);
            together.arrive_and_wait();
            if (thread == 0) accumulate();
            together.arrive_and_wait();
            const bool last = pass == passes - 1;
            if (last && pass == 0) {
                scatter<true>(thread, pass, put);
            } else if (last) {
                scatter<false>(thread, pass, put);
            } else {
                auto next = [this](uint32_t place, uint32_t id, uint32_t entry) {
                    other_keys[place] = id;
                    other_order[place] = entry;
                };
                pass ? scatter<false>(thread, pass, next) : scatter<true>(thread, pass, next);
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
    uint32_t digit(int pass, uint32_t id) const { return (id >> (pass * bits)) & ((1u << bits) - 1); }
    uint32_t* counts(int thread) { return places.data() + (static_cast<size_t>(thread) << bits); }

    void count(int thread, int pass) {
        uint32_t* counted = counts(thread);
        std::fill_n(counted, size_t{1} << bits, 0u);
        const int64_t to = part(entries, thread + 1, threads);
        for (int64_t i = part(entries, thread, threads); i < to; ++i) ++counted[digit(pass, pass ? keys[i] : source[i])];
    }

    template <bool first, class Put>
    void scatter(int thread, int pass, Put put) {
        uint32_t* next = counts(thread);
        const int64_t to = part(entries, thread + 1, threads);
        for (int64_t i = part(entries, thread, threads); i < to; ++i) {
            const uint32_t id = first ? source[i] : keys[i];
            put(next[digit(pass, id)]++, id, first ? static_cast<uint32_t>(i) : order[i]);
        }
    }

    void accumulate() {
        uint32_t total = 0;
        for (int64_t digit = 0; digit < int64_t{1} << bits; ++digit)
            for (int thread = 0; thread < threads; ++thread) {
                uint32_t& place = places[(static_cast<size_t>(thread) << bits) + digit];
                total += std::exchange(place, total);
            }
    }
};
