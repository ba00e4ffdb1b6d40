/* What a unit of a depth-wise LSTM does between its products, row by row: see lstm_unit.py.

Matrices are float, or bfloat16 where `narrow` is set; `mapped` has rows of `span` numbers, of which these
functions read and write the first or last n. Gates are `groups` vectors with a mean and variance each.
Masks are bytes; NULL: nothing is dropped. Each call adds to sums of its own: of gains, then of biases.
Where `output` is NULL, there is no output gate, and `direct` is added to the cell. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t size;
typedef const unsigned char *bytes;

/* Rows do not overlap. */
#define each(n) _Pragma("GCC ivdep") for (size j = 0; j < n; j++)

static inline float bits_to_float(uint32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline uint32_t float_to_bits(float x) { uint32_t bits; memcpy(&bits, &x, 4); return bits; }

static void load(float *to, const void *from, size first, size n, size narrow) {
    if (!narrow) { memcpy(to, (const float *)from + first, n * 4); return; }
    const uint16_t *x = (const uint16_t *)from + first;
    each(n) to[j] = bits_to_float((uint32_t)x[j] << 16);
}

static void store(void *to, size first, const float *x, size n, size narrow) {
    if (!narrow) { memcpy((float *)to + first, x, n * 4); return; }
    uint16_t *y = (uint16_t *)to + first;
    each(n) {
        uint32_t bits = float_to_bits(x[j]), rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        y[j] = x[j] != x[j] ? 0x7fc0 : rounded;
    }
}

static inline float sigmoid(float x) {
    /* e^-|x| = 2^k 2^r with r from -1/2 to 1/2, whose power is a polynomial. */
    float t = fabsf(x) * -1.44269504f;
    t = t < -126.0f ? -126.0f : t;
    float k = rintf(t), r = (t - k) * 0.69314718f;
    float p = 1 + r * (1 + r * (0.5f + r * (0.16666667f + r * (0.041666667f + r * (0.0083333333f + r * 0.0013888889f)))));
    float e = p * bits_to_float((uint32_t)((int32_t)k + 127) << 23), s = 1 / (1 + e);
    return x < 0 ? e * s : s;
}

static void drop(float *x, bytes mask, size first, size n, float scale) {
    if (mask) each(n) x[j] *= scale * mask[first + j];
}

/* Normalise n numbers in place and put gain and bias into y; the factor of all. */
static float norm(float *x, float *y, const float *gain, const float *shift, size n, float eps) {
    float mean = 0, square = 0;
    each(n) mean += x[j];
    mean /= n;
    each(n) { x[j] -= mean; square += x[j] * x[j]; }
    float rate = 1 / sqrtf(square / n + eps);
    each(n) { x[j] *= rate; y[j] = x[j] * gain[j] + shift[j]; }
    return rate;
}

/* From the gradient z of what `norm` gave to that of what it read, in z; sums are n apart from `apart`. */
static void norm_back(float *z, const float *x, const float *gain, float rate, size n, float *sums, size apart) {
    float mean = 0, along = 0;
    each(n) {
        sums[j] += z[j] * x[j];
        sums[apart + j] += z[j];
        z[j] *= gain[j];
        mean += z[j];
        along += z[j] * x[j];
    }
    mean /= n, along /= n;
    each(n) z[j] = rate * (z[j] - mean - x[j] * along);
}

static void gates(float *x, float *y, float *rates, const float *gain, const float *shift, size n, size groups, float eps) {
    size m = n / groups;
    for (size g = 0; g < groups; g++) rates[g] = norm(x + g * m, y + g * m, gain + g * m, shift + g * m, m, eps);
    each(n) y[j] = sigmoid(y[j]);
}

/* The hidden state behind its norm and activation: GLU, which narrows to n / 2, or ReLU. */
void hidden(size from, size to, size n, size narrows, size span, size groups, size narrow, float eps, float scale,
            const void *mapped, const float *gain, const float *shift, bytes mask, void *inner) {
    size h = n / narrows;
    float *x = malloc(n * 8), *y = x + n;
    for (size i = from; i < to; i++) {
        load(x, mapped, (i + 1) * span - n, n, narrow);
        norm(x, y, gain, shift, n, eps);
        if (narrows == 2) each(h) y[j] *= sigmoid(y[h + j]);
        else each(h) y[j] = y[j] < 0 ? 0 : y[j];
        drop(y, mask, i * h, h, scale);
        store(inner, i * h, y, h, narrow);
    }
    free(x);
}

/* `inner` is the gradient of the hidden state before, and the hidden state after. */
void hidden_back(size from, size to, size n, size narrows, size span, size groups, size narrow, float eps,
                 float scale, const void *mapped, const float *gain, const float *shift, bytes mask, void *inner,
                 void *of_mapped, float *sums) {
    size h = n / narrows;
    float *x = malloc(n * 12), *y = x + n, *z = y + n;
    for (size i = from; i < to; i++) {
        load(x, mapped, (i + 1) * span - n, n, narrow);
        float rate = norm(x, y, gain, shift, n, eps);
        load(z, inner, i * h, h, narrow);
        drop(z, mask, i * h, h, scale);
        if (narrows == 2) each(h) {
            float s = sigmoid(y[h + j]);
            z[h + j] = z[j] * y[j] * s * (1 - s);
            z[j] *= s;
            y[j] *= s;
        } else each(h) {
            z[j] = y[j] <= 0 ? 0 : z[j];
            y[j] = y[j] < 0 ? 0 : y[j];
        }
        drop(y, mask, i * h, h, scale);
        store(inner, i * h, y, h, narrow);
        norm_back(z, x, gain, rate, n, sums, n);
        store(of_mapped, (i + 1) * span - n, z, n, narrow);
    }
    free(x);
}

void cell(size from, size to, size d, size span, size groups, size narrow, float eps, float scale, const void *mapped,
          const float *gain, const float *shift, bytes mask, void *state, const void *direct, const float *before,
          float *output, float *after) {
    size n = output ? 3 * d : 2 * d;
    float *x = malloc(d * 28), *y = x + n, *h = y + n, rates[3];
    for (size i = from; i < to; i++) {
        load(x, mapped, i * span, n, narrow);
        gates(x, y, rates, gain, shift, n, groups, eps);
        load(h, state, i * d, d, narrow);
        if (mask) {
            drop(h, mask, i * d, d, scale);
            store(state, i * d, h, d, narrow);
            load(h, state, i * d, d, narrow);
        }
        each(d) h[j] = before[i * d + j] * y[d + j] + h[j] * y[j];
        if (output) each(d) output[i * d + j] = h[j] * y[2 * d + j];
        else {
            load(x, direct, i * d, d, narrow);
            each(d) h[j] += x[j];
        }
        memcpy(after + i * d, h, d * 4);
    }
    free(x);
}

void cell_back(size from, size to, size d, size span, size groups, size narrow, float eps, float scale, const void *mapped,
               const float *gain, const float *shift, bytes mask, const void *state, const float *before,
               const float *of_output, const float *of_after, float *of_before, void *of_state, void *of_mapped,
               float *sums) {
    size n = of_output ? 3 * d : 2 * d, m = n / groups;
    float *x = malloc(d * 40), *y = x + n, *z = y + n, *h = z + n, rates[3];
    for (size i = from; i < to; i++) {
        load(x, mapped, i * span, n, narrow);
        gates(x, y, rates, gain, shift, n, groups, eps);
        load(h, state, i * d, d, narrow);
        each(d) {
            float in = y[j], keep = y[d + j], came = before[i * d + j], total = of_after[i * d + j];
            if (of_output) {
                float out = y[2 * d + j], arrived = of_output[i * d + j];
                total += arrived * out;
                z[2 * d + j] = arrived * (came * keep + h[j] * in) * out * (1 - out);
            }
            z[j] = total * h[j] * in * (1 - in);
            z[d + j] = total * came * keep * (1 - keep);
            of_before[i * d + j] = total * keep;
            h[j] = total * in;
        }
        drop(h, mask, i * d, d, scale);
        store(of_state, i * d, h, d, narrow);
        for (size g = 0; g < groups; g++) norm_back(z + g * m, x + g * m, gain + g * m, rates[g], m, sums + g * m, n);
        store(of_mapped, i * span, z, n, narrow);
    }
    free(x);
}

/* MHPLSTM: rows i are [heads, length, batch], of which a call takes the sentences `from` to `to`; rows of inputs and outputs,
of n and m numbers, are [batch, length, heads], and those of `seen` [cell | input | norm of the sum of the inputs before]. */
#define MEASURES size from, size to, size heads, size length, size batch, size n, size m, size span, size narrow, float eps, float scale
#define EACH_HEAD for (size h = 0; h < heads; h++)
#define EACH_ROW for (size t = 0; t < length; t++) for (size b = from; b < to; b++)
#define EACH_ROW_BACK for (size t = length - 1; t >= 0; t--) for (size b = from; b < to; b++)
#define PLACES size i = (h * length + t) * batch + b, outside = (b * length + t) * heads + h, inside = i * (m + 2 * n)

/* Inputs, and norms of their sums. */
void past(MEASURES, const void *inputs, const float *gain, const float *shift, void *seen) {
    float *x = malloc((to - from + 3) * n * 4), *y = x + n, *z = y + n;
    EACH_HEAD EACH_ROW {
        PLACES;
        float *sum = z + (b - from + 1) * n;
        if (!t) memset(sum, 0, n * 4);
        memcpy(y, sum, n * 4);
        norm(y, z, gain + h * n, shift + h * n, n, eps);
        load(x, inputs, outside * n, n, narrow);
        each(n) sum[j] += x[j];
        store(seen, inside + m, x, n, narrow);
        store(seen, inside + m + n, z, n, narrow);
    }
    free(x);
}

/* `of_seen` is what comes from the map of [input | norm], and `of_pair` from that of [cell | input]. */
void past_back(MEASURES, const void *seen, const float *gain, const float *shift, const void *of_seen, const void *of_pair,
               void *of_inputs, float *sums) {
    float *x = malloc(((to - from) * (length + 1) + 3) * n * 4), *y = x + n, *z = y + n, *row = z + n, *rows = row + (to - from) * n;
    EACH_HEAD {
        EACH_ROW {
            PLACES;
            float *sum = row + (b - from) * n, *of_sum = rows + (t * (to - from) + b - from) * n;
            if (!t) memset(sum, 0, n * 4);
            memcpy(y, sum, n * 4);
            float rate = norm(y, z, gain + h * n, shift + h * n, n, eps);
            load(of_sum, of_seen, i * 2 * n + n, n, narrow);
            norm_back(of_sum, y, gain + h * n, rate, n, sums + 2 * h * n, n);
            load(x, seen, inside + m, n, narrow);
            each(n) sum[j] += x[j];
        }
        EACH_ROW_BACK {
            PLACES;
            float *later = row + (b - from) * n, *of_sum = rows + (t * (to - from) + b - from) * n;
            if (t == length - 1) memset(later, 0, n * 4);
            load(x, of_seen, i * 2 * n, n, narrow);
            load(z, of_pair, i * (m + n) + m, n, narrow);
            each(n) { x[j] += z[j] + later[j]; later[j] += of_sum[j]; }
            store(of_inputs, outside * n, x, n, narrow);
        }
    }
    free(x);
}

void relu(MEASURES, const void *mapped, const float *gain, const float *shift, bytes mask, void *inner) {
    EACH_HEAD for (size t = 0; t < length; t++) {
        size i = (h * length + t) * batch, k = span - 2 * m;
        hidden(i + from, i + to, k, 1, span, 1, narrow, eps, scale, mapped, gain + h * k, shift + h * k, mask, inner);
    }
}

void relu_back(MEASURES, const void *mapped, const float *gain, const float *shift, bytes mask, void *inner, void *of_mapped,
               float *sums) {
    EACH_HEAD for (size t = 0; t < length; t++) {
        size i = (h * length + t) * batch, k = span - 2 * m;
        hidden_back(i + from, i + to, k, 1, span, 1, narrow, eps, scale, mapped, gain + h * k, shift + h * k, mask, inner, of_mapped,
                    sums + 2 * h * k);
    }
}

void cells(MEASURES, const void *mapped, const float *gain, const float *shift, bytes mask, const void *state, const float *initial,
           void *seen) {
    float *x = malloc((to - from + 5) * m * 4), *y = x + 2 * m, *v = y + 2 * m, rates[2];
    EACH_HEAD EACH_ROW {
        PLACES;
        float *c = v + (b - from + 1) * m;
        if (!t) memcpy(c, initial + h * m, m * 4);
        load(x, mapped, i * span, 2 * m, narrow);
        gates(x, y, rates, gain + 2 * h * m, shift + 2 * h * m, 2 * m, 2, eps);
        load(v, state, i * m, m, narrow);
        drop(v, mask, i * m, m, scale);
        each(m) c[j] = c[j] * y[m + j] + v[j] * y[j];
        store(seen, inside, c, m, narrow);
    }
    free(x);
}

/* `of_state` is the gradient that the outputs give to the cells before; `of_initial` begins at 0, and is what later cells give. */
void cells_back(MEASURES, const void *mapped, const float *gain, const float *shift, bytes mask, const void *state,
                const float *initial, const void *seen, const void *of_pair, void *of_state, void *of_mapped, float *of_initial,
                float *sums) {
    float *x = malloc(9 * m * 4), *y = x + 2 * m, *z = y + 2 * m, *v = z + 2 * m, *c = v + m, *before = c + m, rates[2];
    EACH_HEAD EACH_ROW_BACK {
        PLACES;
        float *later = of_initial + (h * batch + b) * m;
        load(x, mapped, i * span, 2 * m, narrow);
        gates(x, y, rates, gain + 2 * h * m, shift + 2 * h * m, 2 * m, 2, eps);
        load(v, state, i * m, m, narrow);
        drop(v, mask, i * m, m, scale);
        load(c, of_state, i * m, m, narrow);
        load(z, of_pair, i * (m + n), m, narrow);
        if (t) load(before, seen, inside - batch * (m + 2 * n), m, narrow);
        else memcpy(before, initial + h * m, m * 4);
        each(m) {
            float in = y[j], keep = y[m + j], total = c[j] + z[j] + later[j];
            z[j] = total * v[j] * in * (1 - in);
            z[m + j] = total * before[j] * keep * (1 - keep);
            v[j] = total * in;
            later[j] = total * keep;
        }
        drop(v, mask, i * m, m, scale);
        store(of_state, i * m, v, m, narrow);
        for (size g = 0; g < 2; g++)
            norm_back(z + g * m, x + g * m, gain + (2 * h + g) * m, rates[g], m, sums + (4 * h + g) * m, 2 * m);
        store(of_mapped, i * span, z, 2 * m, narrow);
    }
    free(x);
}

void gated(MEASURES, const void *gate, const float *gain, const float *shift, const void *seen, void *outputs) {
    float *x = malloc(3 * m * 4), *y = x + m, *c = y + m, rate;
    EACH_HEAD EACH_ROW {
        PLACES;
        load(x, gate, i * m, m, narrow);
        gates(x, y, &rate, gain + h * m, shift + h * m, m, 1, eps);
        load(c, seen, inside, m, narrow);
        each(m) c[j] *= y[j];
        store(outputs, outside * m, c, m, narrow);
    }
    free(x);
}

void gated_back(MEASURES, const void *gate, const float *gain, const float *shift, const void *seen, const void *of_outputs,
                void *of_gate, void *of_cells, float *sums) {
    float *x = malloc(4 * m * 4), *y = x + m, *c = y + m, *z = c + m, rate;
    EACH_HEAD EACH_ROW {
        PLACES;
        load(x, gate, i * m, m, narrow);
        gates(x, y, &rate, gain + h * m, shift + h * m, m, 1, eps);
        load(c, seen, inside, m, narrow);
        load(z, of_outputs, outside * m, m, narrow);
        each(m) {
            float s = y[j], cell = c[j];
            c[j] = z[j] * s;
            z[j] *= cell * s * (1 - s);
        }
        store(of_cells, i * m, c, m, narrow);
        norm_back(z, x, gain + h * m, rate, m, sums + 2 * h * m, m);
        store(of_gate, i * m, z, m, narrow);
    }
    free(x);
}
