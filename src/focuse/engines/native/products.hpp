// Comparisons of many queries with many rows, and their gradients, tile by tile: what a matrix product is for the dot,
// and the same loops for distances. Sums of a tile stay in registers while the depth goes by.
#pragma once

#include "rows.hpp"

// A tile: rows of the result and vectors of its columns, as many as the registers hold.
#ifdef __AVX512F__
constexpr int TILE_ROWS = 8, TILE_LANES = 3, OWN_ROWS = 4, OWN_LANES = 2;
#elif defined(__AVX2__)
constexpr int TILE_ROWS = 4, TILE_LANES = 1, OWN_ROWS = 2, OWN_LANES = 1;
#else
constexpr int TILE_ROWS = 2, TILE_LANES = 1, OWN_ROWS = 1, OWN_LANES = 1;
#endif
constexpr int64_t PANEL = 16 * TILE_LANES;  // columns of a packed panel
constexpr int64_t DEPTH = 192;              // of a product at once: its panel of 36 kB stays in the innermost cache

constexpr int64_t up_to(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

// A matrix whose rows (or, turned, whose columns) lie `far` apart.
template <bool turned>
struct Matrix {
    const float* at;
    int64_t far;
    const float* operator()(int64_t i, int64_t k) const { return turned ? at + k * far + i : at + i * far + k; }
};

// result[i, j] = Σₖ apart(a[i, k], b[k, j]): a tile of sums of products or of distances by coordinates.
template <int form, int rows, int lanes>
INLINE void forth_tile(const Matrix<false>& a, const float* b, int64_t depth, float* result, int64_t result_row) {
    Lanes sums[rows][lanes] = {};
    for (int64_t k = 0; k < depth; ++k) {
        Lanes other[lanes];
        for (int l = 0; l < lanes; ++l) other[l] = load(b + k * PANEL + 16 * l);
        for (int i = 0; i < rows; ++i) {
            const Lanes own = spread(*a(i, k));
            for (int l = 0; l < lanes; ++l) sums[i][l] += apart<form>(own, other[l]);
        }
    }
    for (int i = 0; i < rows; ++i)
        for (int l = 0; l < lanes; ++l) store(result + i * result_row + 16 * l, sums[i][l]);
}

// result[i, j] += Σₖ a[i, k] · pull(own[i, j], b[k, j]): the gradient of `own` from slopes a.
template <int form, int rows, int lanes, bool turned>
INLINE void back_tile(const Matrix<turned>& a, const float* b, const float* own, int64_t stride, int64_t depth,
                      float* result) {
    Lanes sums[rows][lanes], mine[rows][lanes];
    for (int i = 0; i < rows; ++i)
        for (int l = 0; l < lanes; ++l) {
            sums[i][l] = load(result + i * stride + 16 * l);
            if (form != DOT) mine[i][l] = load(own + i * stride + 16 * l);
        }
    for (int64_t k = 0; k < depth; ++k) {
        Lanes other[lanes];
        for (int l = 0; l < lanes; ++l) other[l] = load(b + k * stride + 16 * l);
        for (int i = 0; i < rows; ++i) {
            const Lanes slope = spread(*a(i, k));
            for (int l = 0; l < lanes; ++l) sums[i][l] += slope * pull<form>(mine[i][l], other[l]);
        }
    }
    for (int i = 0; i < rows; ++i)
        for (int l = 0; l < lanes; ++l) store(result + i * stride + 16 * l, sums[i][l]);
}

// work<rows, lanes>(column) over all of a row's panels.
template <int form, class Work>
INLINE void each_panel(int64_t stride, Work work) {
    constexpr int rows = form == DOT ? TILE_ROWS : OWN_ROWS, lanes = form == DOT ? TILE_LANES : OWN_LANES;
    int64_t j = 0;
    for (; j + 16 * lanes <= stride; j += 16 * lanes) work.template operator()<rows, lanes>(j);
    for (; j < stride; j += 16) work.template operator()<rows, 1>(j);
}

// Queries [count, stride] against `panels` of packed rows ([depth, PANEL] each): comparisons [count, result_row].
template <int form>
void forth(const float* queries, int64_t stride, int64_t count, const float* packed, int64_t panels, int64_t depth,
           float* result, int64_t result_row) {
    for (int64_t p = 0; p < panels; ++p) {
        const float* panel = packed + p * depth * PANEL;
        float* to = result + p * PANEL;
        int64_t i = 0;
        auto tile = [&]<int rows>() INLINE_LAMBDA {
            const Matrix<false> some{queries + i * stride, stride};
            forth_tile<form, rows, TILE_LANES>(some, panel, depth, to + i * result_row, result_row);
        };
        for (; i + TILE_ROWS <= count; i += TILE_ROWS) tile.template operator()<TILE_ROWS>();
        for (; i < count; ++i) tile.template operator()<1>();
    }
}

// Adds to result [count, stride] the gradients of `own` [count, stride] against b [depth, stride], for slopes a of `count`
// rows in `depth` columns.
template <int form>
void back(const Matrix<false>& a, const float* b, const float* own, int64_t stride, int64_t count, int64_t depth,
          float* result) {
    for (int64_t from = 0; from < depth; from += DEPTH) {
        const int64_t some = std::min(depth - from, DEPTH);
        each_panel<form>(stride, [&]<int rows, int lanes>(int64_t j) INLINE_LAMBDA {
            auto tile = [&]<int tall>(int64_t i) INLINE_LAMBDA {
                const int64_t at = i * stride + j;
                const Matrix<false> slopes{a(i, from), a.far};
                back_tile<form, tall, lanes>(slopes, b + from * stride + j, own + at, stride, some, result + at);
            };
            int64_t i = 0;
            for (; i + rows <= count; i += rows) tile.template operator()<rows>(i);
            for (; i < count; ++i) tile.template operator()<1>(i);
        });
    }
}

// The same for slopes that lie turned: those of some tiles are first copied together, as they lie far apart.
template <int form>
void back(const Matrix<true>& a, const float* b, const float* own, int64_t stride, int64_t count, int64_t depth,
          float* result) {
    constexpr int tall = form == DOT ? TILE_ROWS : OWN_ROWS, tiles = 64 / tall;
    alignas(64) float slopes[tiles][DEPTH * tall];
    for (int64_t from = 0; from < depth; from += DEPTH)
        for (int64_t top = 0; top < count; top += tiles * tall) {
            const int64_t some = std::min(depth - from, DEPTH), rows_here = std::min<int64_t>(count - top, tiles * tall);
            for (int64_t k = 0; k < some; ++k)
                for (int64_t i = 0; i < rows_here; i += tall) {
                    const int64_t high = i + tall <= rows_here ? tall : rows_here - i;
                    std::copy_n(a(top + i, from + k), high, slopes[i / tall] + k * tall);
                }
            each_panel<form>(stride, [&]<int rows, int lanes>(int64_t j) INLINE_LAMBDA {
                auto tile = [&]<int high>(int64_t i) INLINE_LAMBDA {
                    const int64_t at = (top + i) * stride + j;
                    const Matrix<true> here{slopes[i / tall] + i % tall, tall};
                    back_tile<form, high, lanes>(here, b + from * stride + j, own + at, stride, some, result + at);
                };
                int64_t i = 0;
                for (; i + rows <= rows_here; i += rows) tile.template operator()<rows>(i);
                for (; i < rows_here; ++i) tile.template operator()<1>(i);
            });
        }
}
