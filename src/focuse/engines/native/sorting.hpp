// A stable parallel sort of entries by id; its work is proportional to the number of entries, not to the table size.
#pragma once

#include <barrier>
#include <utility>

#include "common.hpp"

constexpr int DIGIT = 15;  // maximum number of bits per digit, so that the counts fit into the private cache of a core

// Radix sort of all entries by their ids source[entry], lowest digits first. `buffer` has room for 4 · count integers.
template <class Source>
struct Sorter {
    const Source& source;
    const int64_t entries;
    const int threads;
    uint32_t *keys, *order, *other_keys, *other_order;  // ids and entries between two passes
    int bits, passes;
    std::vector<uint32_t> places;  // [threads, digits]

    Sorter(const Source& of, int64_t count, int64_t ids, int workers, uint32_t* buffer)
        : source(of), entries(count), threads(workers), keys(buffer), order(buffer + count),
          other_keys(buffer + 2 * count), other_order(buffer + 3 * count) {
        const int needed = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(ids - 1, 1)));
        passes = (needed + DIGIT - 1) / DIGIT;
        bits = (needed + passes - 1) / passes;
        places.resize(static_cast<size_t>(threads) << bits);
    }

    // Calls put(place, id, entry) for each entry, where `place` is its position in the sorted order. The order of the
    // calls is unspecified.
    template <class Put>
    void sort(int thread, std::barrier<>& barrier, Put put) {
        for (int pass = 0; pass < passes; ++pass) {
            count(thread, pass);
            barrier.arrive_and_wait();
            if (thread == 0) accumulate();
            barrier.arrive_and_wait();
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
            barrier.arrive_and_wait();
            if (thread == 0) {
                std::swap(keys, other_keys);
                std::swap(order, other_order);
            }
            barrier.arrive_and_wait();
        }
    }

  private:
    uint32_t digit(int pass, uint32_t id) const { return (id >> (pass * bits)) & ((1u << bits) - 1); }
    uint32_t* counts(int thread) { return places.data() + (static_cast<size_t>(thread) << bits); }

    void count(int thread, int pass) {
        uint32_t* counted = counts(thread);
        std::fill_n(counted, size_t{1} << bits, 0u);
        const int64_t to = share_start(entries, thread + 1, threads);
        for (int64_t i = share_start(entries, thread, threads); i < to; ++i)
            ++counted[digit(pass, pass ? keys[i] : source[i])];
    }

    template <bool first, class Put>
    void scatter(int thread, int pass, Put put) {
        uint32_t* next = counts(thread);
        const int64_t to = share_start(entries, thread + 1, threads);
        for (int64_t i = share_start(entries, thread, threads); i < to; ++i) {
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
