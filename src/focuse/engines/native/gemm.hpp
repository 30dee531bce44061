// Similarities of many queries to many rows and their gradients, computed in tiles: matrix products for the dot
// product, and the same loops for distances. The sums of a tile stay in registers over the whole depth.
#pragma once

#include "row_math.hpp"

// The size of a tile, in rows and in Lanes of columns; a tile fits into the vector registers.
#ifdef __AVX512F__
constexpr int TILE_ROWS = 8, TILE_LANES = 3, DISTANCE_ROWS = 4, DISTANCE_LANES = 2;
#elif defined(__AVX2__)
constexpr int TILE_ROWS = 4, TILE_LANES = 1, DISTANCE_ROWS = 2, DISTANCE_LANES = 1;
#else
constexpr int TILE_ROWS = 2, TILE_LANES = 1, DISTANCE_ROWS = 1, DISTANCE_LANES = 1;
#endif
constexpr int64_t PANEL = 16 * TILE_LANES;  // columns of a packed panel
constexpr int64_t DEPTH = 192;              // depth of a partial product, whose panel of 36 kB stays in the L1 cache

constexpr int64_t round_up(int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; }

// A matrix whose rows (or columns, if it is stored transposed) are `stride` floats apart.
template <bool transposed>
struct Matrix {
    const float* data;
    int64_t stride;
    const float* operator()(int64_t i, int64_t k) const {
        return transposed ? data + k * stride + i : data + i * stride + k;
    }
};

// Computes result[i, j] = Σₖ similarity_term(a[i, k], b[k, j]) for one tile.
template <int similarity, int rows, int lanes>
INLINE void similarity_tile(const Matrix<false>& a, const float* b, int64_t depth, float* result,
                            int64_t result_stride) {
    Lanes sums[rows][lanes] = {};
    for (int64_t k = 0; k < depth; ++k) {
        Lanes other[lanes];
        for (int l = 0; l < lanes; ++l) other[l] = load(b + k * PANEL + 16 * l);
        for (int i = 0; i < rows; ++i) {
            const Lanes own = spread(*a(i, k));
            for (int l = 0; l < lanes; ++l) sums[i][l] += similarity_term<similarity>(own, other[l]);
        }
    }
    for (int i = 0; i < rows; ++i)
        for (int l = 0; l < lanes; ++l) store(result + i * result_stride + 16 * l, sums[i][l]);
}

// Computes result[i, j] += Σₖ a[i, k] · similarity_gradient(own[i, j], b[k, j]) for one tile. This is the gradient of
// `own`, where `a` holds the gradients of the similarities.
template <int similarity, int rows, int lanes, bool transposed>
INLINE void gradient_tile(const Matrix<transposed>& a, const float* b, const float* own, int64_t stride, int64_t depth,
                          float* result) {
    Lanes sums[rows][lanes], mine[rows][lanes];
    for (int i = 0; i < rows; ++i)
        for (int l = 0; l < lanes; ++l) {
            sums[i][l] = load(result + i * stride + 16 * l);
            if (similarity != DOT) mine[i][l] = load(own + i * stride + 16 * l);
        }
    for (int64_t k = 0; k < depth; ++k) {
        Lanes other[lanes];
        for (int l = 0; l < lanes; ++l) other[l] = load(b + k * stride + 16 * l);
        for (int i = 0; i < rows; ++i) {
            const Lanes slope = spread(*a(i, k));
            for (int l = 0; l < lanes; ++l) sums[i][l] += slope * similarity_gradient<similarity>(mine[i][l], other[l]);
        }
    }
    for (int i = 0; i < rows; ++i)
        for (int l = 0; l < lanes; ++l) store(result + i * stride + 16 * l, sums[i][l]);
}

// Calls work<rows, lanes>(column) for each tile's first column.
template <int similarity, class Work>
INLINE void each_tile_column(int64_t stride, Work work) {
    constexpr int rows = similarity == DOT ? TILE_ROWS : DISTANCE_ROWS;
    constexpr int lanes = similarity == DOT ? TILE_LANES : DISTANCE_LANES;
    int64_t j = 0;
    for (; j + 16 * lanes <= stride; j += 16 * lanes) work.template operator()<rows, lanes>(j);
    for (; j < stride; j += 16) work.template operator()<rows, 1>(j);
}

// Computes the sums [count, result_stride] of queries [count, stride] and `panels` panels of packed rows, [depth,
// PANEL] each; `similarity_of_sum` turns the sums into similarities.
template <int similarity>
void similarity_matrix(const float* queries, int64_t stride, int64_t count, const float* packed, int64_t panels,
                       int64_t depth, float* result, int64_t result_stride) {
    for (int64_t p = 0; p < panels; ++p) {
        const float* panel = packed + p * depth * PANEL;
        float* to = result + p * PANEL;
        int64_t i = 0;
        auto tile = [&]<int rows>() INLINE_LAMBDA {
            const Matrix<false> some{queries + i * stride, stride};
            similarity_tile<similarity, rows, TILE_LANES>(some, panel, depth, to + i * result_stride, result_stride);
        };
        for (; i + TILE_ROWS <= count; i += TILE_ROWS) tile.template operator()<TILE_ROWS>();
        for (; i < count; ++i) tile.template operator()<1>();
    }
}

// Adds the gradients of the rows `own` [count, stride], compared with b [depth, stride], to result [count, stride];
// a [count, depth] holds the gradients of the similarities.
template <int similarity>
void gradient_matrix(const Matrix<false>& a, const float* b, const float* own, int64_t stride, int64_t count,
                     int64_t depth, float* result) {
    for (int64_t from = 0; from < depth; from += DEPTH) {
        const int64_t some = std::min(depth - from, DEPTH);
        each_tile_column<similarity>(stride, [&]<int rows, int lanes>(int64_t j) INLINE_LAMBDA {
            auto tile = [&]<int tall>(int64_t i) INLINE_LAMBDA {
                const int64_t at = i * stride + j;
                const Matrix<false> slopes{a(i, from), a.stride};
                gradient_tile<similarity, tall, lanes>(slopes, b + from * stride + j, own + at, stride, some,
                                                       result + at);
            };
            int64_t i = 0;
            for (; i + rows <= count; i += rows) tile.template operator()<rows>(i);
            for (; i < count; ++i) tile.template operator()<1>(i);
        });
    }
}

// Does the same for gradients that are stored transposed: the gradients of a few tiles are first copied to a buffer.
template <int similarity>
void gradient_matrix(const Matrix<true>& a, const float* b, const float* own, int64_t stride, int64_t count,
                     int64_t depth, float* result) {
    constexpr int tall = similarity == DOT ? TILE_ROWS : DISTANCE_ROWS, tiles = 64 / tall;
    alignas(64) float slopes[tiles][DEPTH * tall];
    for (int64_t from = 0; from < depth; from += DEPTH)
        for (int64_t top = 0; top < count; top += tiles * tall) {
            const int64_t some = std::min(depth - from, DEPTH);
            const int64_t rows_here = std::min<int64_t>(count - top, tiles * tall);
            for (int64_t k = 0; k < some; ++k)
                for (int64_t i = 0; i < rows_here; i += tall) {
                    const int64_t high = i + tall <= rows_here ? tall : rows_here - i;
                    std::copy_n(a(top + i, from + k), high, slopes[i / tall] + k * tall);
                }
            each_tile_column<similarity>(stride, [&]<int rows, int lanes>(int64_t j) INLINE_LAMBDA {
                auto tile = [&]<int high>(int64_t i) INLINE_LAMBDA {
                    const int64_t at = (top + i) * stride + j;
                    const Matrix<true> here{slopes[i / tall] + i % tall, tall};
                    gradient_tile<similarity, high, lanes>(here, b + from * stride + j, own + at, stride, some,
                                                           result + at);
                };
                int64_t i = 0;
                for (; i + rows <= rows_here; i += rows) tile.template operator()<rows>(i);
                for (; i < rows_here; ++i) tile.template operator()<1>(i);
            });
        }
}
