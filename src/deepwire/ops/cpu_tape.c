/* Carries out a recorded decoder step (cpu_tape.py): operations on float32 at fixed addresses.
 *
 * An operation is some int64: its number, how many there are with these two, and what the comment at its
 * function says; sizes and strides are in elements. A row's sums do not depend on the rows beside it.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif

typedef int64_t i64;
/* As wide as a register, since gcc takes wider vectors apart in memory; and so many rows as there is room for. */
#if defined __AVX512F__
#define LANES 16
#define ROWS 8
#else
#ifdef __AVX__
#define LANES 8
#else
#define LANES 4
#endif
#define ROWS 6
#endif
typedef float vec __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t choice __attribute__((vector_size(LANES * 4)));
#define PAIR (2 * LANES)
#define CHUNK 64
#define THREADS_PAY 65536
#define HIDDEN -1e30f
#define P(type, x) ((type *)(intptr_t)(x))

static float as_float(i64 bits) { double d; memcpy(&d, &bits, 8); return (float)d; }

/* Within about an ulp, in a form that becomes vector code (Cephes). */
static inline float fast_exp(float x) {
    x = x < -87.3f ? -87.3f : x > 88.0f ? 88.0f : x;
    float n = floorf(x * 1.44269504088896341f + 0.5f), r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float y = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r
               + 1.6666665459e-1f) * r + 5.0000001201e-1f;
    union { int32_t i; float f; } scale = {((int32_t)n + 127) << 23};
    return (y * r * r + r + 1.0f) * scale.f;
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

static inline int exceeds(float x, float y) { return x > y || (x != x && y == y); }

/* NaN is larger than all numbers, as in torch. */
static float largest(const float *x, i64 n) {
    float most = -INFINITY;
    vec part = (vec){0} + most;
    i64 i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec now = *(const vec *)(x + i);
        choice larger = (now > part) | (now != now);
        part = (vec)((larger & (choice)now) | (~larger & (choice)part));
    }
    for (; i < n; i++) most = exceeds(x[i], most) ? x[i] : most;
    for (int l = 0; l < LANES; l++) most = exceeds(part[l], most) ? part[l] : most;
    return most;
}

static float log_sum(const float *x, i64 n) {
    float most = largest(x, n), part[LANES] = {0}, sum = 0;
    i64 i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) part[l] += fast_exp(x[i + l] - most);
    for (; i < n; i++) sum += fast_exp(x[i] - most);
    for (int l = 0; l < LANES; l++) sum += part[l];
    return most + logf(sum);
}

static float dot(const float *a, const float *b, i64 n) {
    vec sum = {0};
    float s = 0;
    i64 i = 0;
    for (; i + LANES <= n; i += LANES) sum += *(const vec *)(a + i) * *(const vec *)(b + i);
    for (; i < n; i++) s += a[i] * b[i];
    for (int l = 0; l < LANES; l++) s += sum[l];
    return s;
}

static void add_scaled(float *restrict x, const float *restrict y, float v, i64 n) {
    for (i64 i = 0; i < n; i++) x[i] += v * y[i];
}

#define EACH(expression)                                                                                   \
    if (so == 1 && sx == 1 && sy == 1 && sz <= 1)                                                          \
        for (i64 i = 0; i < n; i++) { float a = x[i], b = y[i], c = z[i * sz]; (void)b, (void)c; o[i] = expression; } \
    else                                                                                                   \
        for (i64 i = 0; i < n; i++) {                                                                      \
            float a = x[i * sx], b = y[i * sy], c = z[i * sz]; (void)b, (void)c; o[i * so] = expression;   \
        }                                                                                                  \
    break;

/* In the order of FUNCTIONS in cpu_tape.py. */
static void map(i64 f, i64 n, float *restrict o, const float *x, const float *y, const float *z, i64 so, i64 sx,
                i64 sy, i64 sz) {
    switch (f) {
    case 0: if (so == 1 && sx == 1) { memcpy(o, x, n * 4); break; } EACH(a)
    case 1: EACH(a + b)
    case 2: EACH(a - b)
    case 3: EACH(a * b)
    case 4: EACH(a / b)
    case 5: EACH(-a)
    case 6: EACH(a > 0 ? a : a != a ? a : 0)
    case 7: EACH(sigmoid(a))
    case 8: EACH(tanhf(a))
    case 9: EACH(a * sigmoid(a))
    case 10: EACH(0.5f * a * (1.0f + erff(a * 0.70710678118654752f)))
    case 11: EACH(expf(a))
    case 12: EACH(sqrtf(a))
    case 13: EACH(1.0f / sqrtf(a))
    case 14: EACH(a * a)
    case 15: EACH(a + b * c)
    case 16: EACH(a * sigmoid(b))
    case 17: EACH(fabsf(a))
    case 18: EACH(a > b ? a : a != a ? a : b)
    case 19: for (i64 i = 0; i < n; i++) o[i * so] += x[i * sx]; break;
    case 20: for (i64 i = 0; i < n; i++, o += so) if (!(x[i * sx] <= *o) && *o == *o) *o = x[i * sx]; /* NaN stays */
    }
}

/* function axes o x y z; sizes; strides of o, x, y, z */
static void elementwise(const i64 *c) {
    i64 axes = c[1], at[6] = {0}, last = axes - 1;
    const i64 *sizes = c + 6, *s[4];
    float *p[4];
    for (i64 axis = 0; axis < axes; axis++) if (sizes[axis] < 1) return;
    for (int k = 0; k < 4; k++) p[k] = P(float, c[2 + k]), s[k] = sizes + axes * (1 + k);
    for (;;) {
        map(c[0], sizes[last], p[0], p[1], p[2], p[3], s[0][last], s[1][last], s[2][last], s[3][last]);
        i64 axis = last - 1;
        for (; axis >= 0; at[axis--] = 0) {
            for (int k = 0; k < 4; k++) p[k] += s[k][axis];
            if (++at[axis] < sizes[axis]) break;
            for (int k = 0; k < 4; k++) p[k] -= s[k][axis] * sizes[axis];
        }
        if (axis < 0) return;
    }
}

/* R rows by two panels of the weight; a panel has LANES outputs for each input. */
#define BLOCK(NAME, R, FORMAT, LOAD)                                                                       \
    static void NAME##R(const float *x, i64 sx, const void *panels, i64 inputs, vec *out) {                \
        const FORMAT *w = panels;                                                                          \
        vec s0[R], s1[R];                                                                                  \
        for (int r = 0; r < R; r++) s0[r] = s1[r] = (vec){0};                                              \
        for (i64 k = 0; k < inputs; k++) {                                                                 \
            vec a = LOAD(w + k * LANES), b = LOAD(w + (inputs + k) * LANES);                               \
            for (int r = 0; r < R; r++) { float v = x[r * sx + k]; s0[r] += a * v; s1[r] += b * v; }       \
        }                                                                                                  \
        for (int r = 0; r < R; r++) { out[2 * r] = s0[r]; out[2 * r + 1] = s1[r]; }                        \
    }
#define EACH_R(MAKE) MAKE(1) MAKE(2) MAKE(3) MAKE(4) MAKE(5) MAKE(6) MAKE(7) MAKE(8)
#define BY_R(NAME) {0, NAME##1, NAME##2, NAME##3, NAME##4, NAME##5, NAME##6, NAME##7, NAME##8}
#define FLOATS(p) (*(const vec *)(p))
#define OF_FLOATS(R) BLOCK(floats, R, float, FLOATS)
EACH_R(OF_FLOATS)
#if defined __AVX512F__
#define HALVES(p) ((vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p))))
#elif defined __F16C__
#define HALVES(p) ((vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p))))
#endif
#ifdef HALVES
#define OF_HALVES(R) BLOCK(halves, R, int16_t, HALVES)
EACH_R(OF_HALVES)
#endif
static void (*const BLOCKS[][9])(const float *, i64, const void *, i64, vec *) = {
    BY_R(floats),
#ifdef HALVES
    BY_R(halves),
#endif
};
/* Whether weights of float16 can be read. */
const i64 has_halves = sizeof BLOCKS / sizeof *BLOCKS - 1;

/* x panels bias y; rows inputs outputs, strides of rows of x and y; whether the panels are of float16:
 * y = x W^T + b, bias 0: none */
static void linear(const i64 *c) {
    i64 rows = c[4], inputs = c[5], outputs = c[6], size = c[9] ? 2 : 4;
#pragma omp parallel for schedule(static) if (inputs * outputs >= THREADS_PAY)
    for (i64 first = 0; first < outputs; first += PAIR) {
        i64 count = outputs - first < PAIR ? outputs - first : PAIR;
        for (i64 row = 0; row < rows; row += ROWS) {
            i64 some = rows - row < ROWS ? rows - row : ROWS;
            vec out[2 * ROWS];
            BLOCKS[c[9]][some](
                P(float, c[0]) + row * c[7], c[7], P(char, c[1]) + first * inputs * size, inputs, out);
            for (i64 r = 0; r < some; r++) {
                float *to = P(float, c[3]) + (row + r) * c[8] + first;
                memcpy(to, out + 2 * r, count * 4);
                if (c[2]) add_scaled(to, P(float, c[2]) + first, 1, count);
            }
        }
    }
}

/* x panels factors zeros y room; rows inputs outputs; 1 / the size of a level: x in bytes times W, whose bytes have
 * seven bits; from a row's sums of products `zeros` is taken, and `factors` makes numbers of them. A panel has eight
 * outputs, and of each four inputs in a row; inputs are filled up to fours. */
#ifdef __AVX2__
const i64 has_bytes = 1;

static inline __m256i add_products(__m256i sum, __m256i x, __m256i w) {
#if defined __AVX512VNNI__ && defined __AVX512VL__
    return _mm256_dpbusd_epi32(sum, x, w);
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), _mm256_set1_epi16(1)));
#endif
}

#define OF_BYTES(R)                                                                                        \
    static void bytes##R(const int32_t *x, i64 fours, const __m256i *w, __m256i *out) {                    \
        __m256i s0[R], s1[R];                                                                              \
        for (int r = 0; r < R; r++) s0[r] = s1[r] = _mm256_setzero_si256();                                \
        for (i64 k = 0; k < fours; k++) {                                                                  \
            __m256i a = _mm256_loadu_si256(w + k), b = _mm256_loadu_si256(w + fours + k);                  \
            for (int r = 0; r < R; r++) {                                                                  \
                __m256i v = _mm256_set1_epi32(x[r * fours + k]);                                           \
                s0[r] = add_products(s0[r], v, a), s1[r] = add_products(s1[r], v, b);                      \
            }                                                                                              \
        }                                                                                                  \
        for (int r = 0; r < R; r++) out[2 * r] = s0[r], out[2 * r + 1] = s1[r];                            \
    }
EACH_R(OF_BYTES)
static void (*const BYTES[])(const int32_t *, i64, const __m256i *, __m256i *) = BY_R(bytes);

static void linear_of_bytes(const i64 *c) {
    i64 rows = c[6], inputs = c[7], outputs = c[8], fours = (inputs + 3) / 4;
    uint8_t *room = P(uint8_t, c[5]);
    for (i64 row = 0; row < rows; row++) {
        const float *x = P(float, c[0]) + row * inputs;
        uint8_t *to = room + row * fours * 4;
        for (i64 k = 0; k < inputs; k++) {
            float level = rintf(x[k] * as_float(c[9]) + 128);
            to[k] = (uint8_t)(int)(level < 0 ? 0 : level > 255 ? 255 : level);
        }
    }
#pragma omp parallel for schedule(static) if (inputs * outputs >= THREADS_PAY)
    for (i64 first = 0; first < outputs; first += 16) {
        i64 count = outputs - first < 16 ? outputs - first : 16;
        for (i64 row = 0; row < rows; row += ROWS) {
            i64 some = rows - row < ROWS ? rows - row : ROWS;
            __m256i out[2 * ROWS];
            BYTES[some](P(int32_t, room) + row * fours, fours, P(__m256i, c[1]) + first / 8 * fours, out);
            for (i64 r = 0; r < some; r++) {
                float *to = P(float, c[4]) + (row + r) * outputs + first;
                const int32_t *sums = (const int32_t *)(out + 2 * r), *zeros = P(int32_t, c[3]) + first;
                for (i64 i = 0; i < count; i++) to[i] = (float)(sums[i] - zeros[i]) * P(float, c[2])[first + i];
            }
        }
    }
}
#else
const i64 has_bytes = 0;
static void linear_of_bytes(const i64 *c) { (void)c; }
#endif

/* q k v bias out room; B H T S h, queries' heads for one of keys; strides B H T of q k v bias out; scale */
static void attention(const i64 *c) {
    i64 keys = c[9], width = c[10], *seen = P(i64, c[5]);
    const i64 *s = c + 12;
    float *scores = P(float, seen + keys);
    for (i64 b = 0; b < c[6]; b++) for (i64 h = 0; h < c[7]; h++) for (i64 t = 0; t < c[8]; t++) {
        const float *q = P(float, c[0]) + b * s[0] + h * s[1] + t * s[2];
        const float *k = P(float, c[1]) + b * s[3] + h / c[11] * s[4];
        const float *v = P(float, c[2]) + b * s[6] + h / c[11] * s[7];
        const float *bias = c[3] ? P(float, c[3]) + b * s[9] + h * s[10] + t * s[11] : 0;
        float *out = P(float, c[4]) + b * s[12] + h * s[13] + t * s[14];
        /* What may not be seen has a weight of exactly 0; where nothing may, all have the same. */
        i64 count = 0;
        for (i64 j = 0; j < keys; j++) if (!bias || bias[j] > HIDDEN) seen[count++] = j;
        for (i64 i = 0; i < count; i++)
            scores[i] = dot(q, k + seen[i] * s[5], width) * as_float(c[27]) + (bias ? bias[seen[i]] : 0);
        if (!count) for (; count < keys; count++) seen[count] = count, scores[count] = 0;
        float sum = log_sum(scores, count);
        memset(out, 0, width * 4);
        for (i64 i = 0; i < count; i++) add_scaled(out, v + seen[i] * s[8], fast_exp(scores[i] - sum), width);
    }
}

/* x o; rows, columns; whether the logarithm is wanted */
static void softmax(const i64 *c) {
    i64 n = c[3];
    for (i64 row = 0; row < c[2]; row++) {
        const float *x = P(float, c[0]) + row * n;
        float *o = P(float, c[1]) + row * n, sum = log_sum(x, n);
        if (c[4]) for (i64 i = 0; i < n; i++) o[i] = x[i] - sum;
        else for (i64 i = 0; i < n; i++) o[i] = fast_exp(x[i] - sum);
    }
}

/* x weight bias o; rows, columns; eps; whether the mean is taken out: a layer norm, or an RMS norm */
static void norm(const i64 *c) {
    const float *weight = P(float, c[1]), *bias = P(float, c[2]);
    i64 n = c[5];
    for (i64 row = 0; row < c[4]; row++) {
        const float *x = P(float, c[0]) + row * n;
        float *o = P(float, c[3]) + row * n, mean = 0, square = 0;
        if (c[7]) for (i64 i = 0; i < n; i++) mean += x[i];
        mean /= n;
        for (i64 i = 0; i < n; i++) o[i] = x[i] - mean;
        square = dot(o, o, n);
        float scale = 1.0f / sqrtf(square / n + as_float(c[6]));
        for (i64 i = 0; i < n; i++) o[i] = o[i] * scale * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
    }
}

/* table index o; how many, numbers of each, stride of the table */
static void rows_of(const i64 *c) {
    for (i64 i = 0; i < c[3]; i++)
        memcpy(P(float, c[2]) + i * c[4], P(float, c[0]) + P(i64, c[1])[i] * c[5], c[4] * 4);
}

/* o index x; two sizes before, how many, behind; strides of o and of x: o[a, b, index[i], j] = x[a, b, i, j] */
static void put(const i64 *c) {
    for (i64 a = 0; a < c[3]; a++) for (i64 b = 0; b < c[4]; b++) for (i64 i = 0; i < c[5]; i++) {
        float *o = P(float, c[0]) + a * c[7] + b * c[8] + P(i64, c[1])[i] * c[9];
        const float *x = P(float, c[2]) + a * c[11] + b * c[12] + i * c[13];
        for (i64 j = 0; j < c[6]; j++) o[j * c[10]] = x[j * c[14]];
    }
}

void run(const i64 *code, i64 length) {
    static void (*const OPERATIONS[])(const i64 *) = {elementwise, linear, attention, softmax,
                                                       norm, rows_of, put, linear_of_bytes};
    for (const i64 *end = code + length; code < end; code += code[1]) OPERATIONS[code[0]](code + 2);
}

/* A weight [outputs, inputs] as `linear` reads it, outputs filled up to whole pairs of panels. */
void panels(const float *weight, i64 outputs, i64 inputs, float *to) {
    for (i64 o = 0; o < (outputs + PAIR - 1) / PAIR * PAIR; o++) for (i64 k = 0; k < inputs; k++)
        to[(o / LANES * inputs + k) * LANES + o % LANES] = o < outputs ? weight[o * inputs + k] : 0;
}

/* The k largest numbers of each row [parts, columns], largest first, and where they stand in it. To each part a number
 * of `added` [rows, parts] is added first; 0: none. */
void top_k(const float *x, const float *added, i64 rows, i64 parts, i64 columns, i64 k, float *best, i64 *index) {
#pragma omp parallel for schedule(static) if (rows * parts * columns >= THREADS_PAY)
    for (i64 row = 0; row < rows; row++) {
        const float *from = x + row * parts * columns;
        float *most = best + row * k;
        i64 n = 0, *at = index + row * k;
        for (i64 part = 0; part < parts; part++, from += columns) {
            float more = added ? added[row * parts + part] : 0;
            for (i64 first = 0; first < columns; first += CHUNK) {
                i64 end = first + CHUNK < columns ? first + CHUNK : columns;
                float least = n < k ? NAN : most[k - 1];
                int any = 0;
                for (i64 i = first; i < end; i++) any |= !(from[i] + more <= least);
                for (i64 i = first; any && i < end; i++) {
                    float now = from[i] + more;
                    if (n == k && !exceeds(now, most[k - 1])) continue;
                    i64 place = n < k ? n++ : k - 1;
                    for (; place && exceeds(now, most[place - 1]); place--)
                        most[place] = most[place - 1], at[place] = at[place - 1];
                    most[place] = now, at[place] = part * columns + i;
                }
            }
        }
    }
}

/* Steps of a beam search (`BeamSteps` in cpu_tape.py): N sentences of W hypotheses, and V numbers for what follows each. */
struct beam {
    i64 sentences, width, columns, pieces, end;  /* N, W, V, how many of V can be chosen, and one that ends */
    const i64 *forbidden;                        /* three of V */
    float *sums;                                 /* [N, W] log-probabilities */
    i64 *history;                                /* [N, W, room] subwords, of which `step` are there */
    const float *divisors, *last, *worst;        /* of sums, by length; [N] of the longest, and scores to exceed */
    float *best;                                 /* [N, 2 W], the best continuations of the last step */
    i64 *index;                                  /* and where they stand */
    const i64 *code;                             /* the recorded step */
    const float *vectors;                        /* [steps, dim] of the positions, or 0 */
    float *log_probs;                            /* [N W, V], what a step makes */
    i64 *tokens, *position, *slots;              /* [N W], [], [group], what it reads */
    float *vector, *mask;                        /* [dim]; [N, W, capacity] or 0 */
    const i64 *moves;                            /* [states, 3] of rows: where made, where read, and the bytes of one */
    i64 step, room, length, steps, dim, group, capacity, states;
};

/* The W continuations that go on: their places among the best. 0: a hypothesis ends, or a sentence does. */
static int go_on(const struct beam *b, i64 step, i64 *places) {
    i64 w = b->width;
    for (i64 n = 0; n < b->sentences; n++) {
        const float *best = b->best + 2 * n * w, divisor = fmaxf(b->last[n], b->divisors[step]);
        i64 found = 0;
        for (i64 j = 0; found < w; j++) {
            int ends = b->index[2 * n * w + j] % b->columns == b->end;
            if (ends && j < w) return 0;
            if (!ends) places[n * w + found++] = 2 * n * w + j;
        }
        if (!(best[places[n * w] - 2 * n * w] / divisor > b->worst[n])) return 0;
    }
    return 1;
}

/* Each row becomes that of its parent: so many bytes of it. */
static void reorder(char *x, char *room, const i64 *parents, i64 rows, i64 stride, i64 bytes) {
    for (i64 r = 0; r < rows; r++) memcpy(room + r * bytes, x + parents[r] * stride, bytes);
    for (i64 r = 0; r < rows; r++) memcpy(x + r * stride, room + r * bytes, bytes);
}

/* Goes on until a hypothesis ends; how many steps were taken before that of `best` and `index`. */
i64 beam_steps(const struct beam *b) {
    i64 w = b->width, rows = b->sentences * w, done = 0;
    i64 *places = malloc(rows * 8 * (2 + b->room + b->capacity)), *parents = places + rows;
    char *room = (char *)(parents + rows);
    for (;; done++) {
        run(b->code, b->length);
        for (i64 r = 0; r < rows; r++) {
            float *x = b->log_probs + r * b->columns;
            for (i64 j = 0; j < 3; j++) x[b->forbidden[j]] = -INFINITY;
            for (i64 j = b->pieces; j < b->columns; j++) x[j] = -INFINITY;
        }
        top_k(b->log_probs, b->sums, b->sentences, w, b->columns, 2 * w, b->best, b->index);
        if (done + 1 == b->steps || !go_on(b, b->step + done + 1, places)) break;
        int moved = 0;
        for (i64 r = 0; r < rows; r++) {
            parents[r] = r / w * w + b->index[places[r]] / b->columns;
            moved |= parents[r] != r;
            b->sums[r] = b->best[places[r]];
        }
        if (moved) reorder((char *)b->history, room, parents, rows, b->room * 8, (b->step + done) * 8);
        if (moved && b->mask) reorder((char *)b->mask, room, parents, rows, b->capacity * 4, b->capacity * 4);
        for (const i64 *m = b->moves; m < b->moves + 3 * b->states; m += 3)
            for (i64 r = 0; r < rows; r++) memcpy(P(char, m[1]) + r * m[2], P(char, m[0]) + parents[r] * m[2], m[2]);
        for (i64 r = 0; r < rows; r++)
            b->tokens[r] = b->history[r * b->room + b->step + done] = b->index[places[r]] % b->columns;
        for (i64 i = 0; i < b->group; i++) b->slots[i] += b->group;
        ++*b->position;
        if (b->vector) memcpy(b->vector, b->vectors + (done + 1) * b->dim, b->dim * 4);
    }
    free(places);
    return done;
}
