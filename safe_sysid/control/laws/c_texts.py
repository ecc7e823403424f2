"""Texts in C of the robust law: ``@p@`` and ``@P@`` stand for the prefix of its names.

``LAW`` follows ``TOP``, the regressor, the tables and the numbers that :mod:`safe_sysid.control.laws.c_code` writes.
"""

__all__ = ["HEADER", "LAW", "LOOP", "README", "TEST", "TOP"]

HEADER = """\
/* Robust control law of @NAME@. SI units; README.md says what is proved, and what is left to the caller.
   No heap, no state, no libraries but sqrt: threads may call at once. */
#ifndef @P@_H
#define @P@_H

#ifdef __cplusplus
extern "C" {
#endif

#define @P@_JOINTS @N@
#define @P@_PARAMETERS @SIZE@
#define @P@_CLIPPED 1     /* command it, and brake along the certified motion: a torque is at its limit */
#define @P@_UNPROVED 2    /* command it; S is above what the tracking bound assumes: nothing is claimed */
#define @P@_BAD_INPUT 4   /* fault: a number is not finite, or out of range */
#define @P@_ABOVE_V_MAX 8 /* fault: V is above V_max, an assumption is false */
/* After a fault command nothing: the torques are zero, the arm's own brakes stop it. */
#define @P@_FAULT (@P@_BAD_INPUT | @P@_ABOVE_V_MAX)

typedef struct {
    double mid[@P@_PARAMETERS], half[@P@_PARAMETERS]; /* in an order of the file's own */
} @p@_box;

typedef struct {
    double torque[@P@_JOINTS];                            /* to command, N m; zero after a fault */
    double e[@P@_JOINTS], de[@P@_JOINTS], r[@P@_JOINTS];  /* measured errors; rad, rad/s, rad/s */
    double V;                                             /* V is at least this, J */
    double S;                                             /* sqrt(W/s) */
} @p@_result;

extern const double @p@_prior_lower[@P@_PARAMETERS], @p@_prior_upper[@P@_PARAMETERS];

/* The box of parameters to work with, from bounds in the order of the topic `bounds`. Returns 0; or 1, and leaves the
   box as it is: a bound is not finite, lower is above upper, or the box is not inside the prior that gains are for. */
int @p@_set_box(@p@_box *box, const double *lower, const double *upper);

/* Whether the guarantee may begin at a measurement of an arm that shall hold where it is: 0, or 1. */
int @p@_why_not_start(const double *q, const double *qd);

/* One tick: measured q, qd; desired q_d, qd_d, qdd_d; n numbers each. Returns 0 or flags of the above. */
int @p@_step(const @p@_box *box, const double *q, const double *qd, const double *q_d, const double *qd_d,
    const double *qdd_d, @p@_result *out);

#ifdef __cplusplus
}
#endif

#endif
"""

TOP = """\
#include "@p@.h"
#include <float.h>
#include <math.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "built without NaN (-ffast-math, -ffinite-math-only): the checks of numbers would be gone"
#endif
#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "double is not evaluated in double: use SSE (-mfpmath=sse)"
#endif

"""

LAW = """\
#define COLUMNS (11 * N) /* links, then rotors; friction of joint j is in its own row alone */
#define FC (11 * N)
#define FV (12 * N)
#define BETA (13 * N)

static int finite(const double *x, double most)
{
    int good = 1;
    for (int j = 0; j < N; ++j)
        good &= fabs(x[j]) <= most; /* NaN is not */
    return good;
}

static double clamp(double x)
{
    return x > 1.0 ? 1.0 : x < -1.0 ? -1.0 : x;
}

/* Eight sums, that the compiler may take side by side. */
static double sum_of_products(const double *a, const double *b, int count, int absolute)
{
    double s[8] = {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0};
    int p = 0;
    if (absolute) {
        for (; p + 8 <= count; p += 8)
            for (int i = 0; i < 8; ++i)
                s[i] += fabs(a[p + i]) * b[p + i];
        for (; p < count; ++p)
            s[0] += fabs(a[p]) * b[p];
    } else {
        for (; p + 8 <= count; p += 8)
            for (int i = 0; i < 8; ++i)
                s[i] += a[p + i] * b[p + i];
        for (; p < count; ++p)
            s[0] += a[p] * b[p];
    }
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* Value of a parameter: the middle of its interval, moved against r^T W as far as the interval goes. */
static double moved(double mid, double half, double x, double weight)
{
    const double scale = GAIN * weight;
    return mid + half * clamp(x / (scale > 0.0 ? scale : 1.0));
}

int @p@_set_box(@p@_box *box, const double *lower, const double *upper)
{
    int good = 1;
    for (int p = 0; p < @P@_PARAMETERS; ++p)
        good &= lower[p] >= @p@_prior_lower[p] && lower[p] <= upper[p] && upper[p] <= @p@_prior_upper[p];
    if (!good)
        return 1;
    for (int p = 0; p < @P@_PARAMETERS; ++p) {
        const double l = lower[order[p]], u = upper[order[p]], mid = 0.5 * l + 0.5 * u;
        const double half = mid - l > u - mid ? mid - l : u - mid;
        box->mid[p] = mid;
        box->half[p] = half > 0.0 ? half * (1.0 + DBL_EPSILON) + 1e-300 : 0.0;
    }
    return 0;
}

int @p@_why_not_start(const double *q, const double *qd)
{
    double energy = 0.0, spread = 0.0;
    int good = 1;
    for (int j = 0; j < N; ++j) {
        const double r = fabs(qd[j]) + r_noise[j] + K_r[j] * q_noise[j], share = K_r[j] * q_noise[j] / r_bound[j];
        energy += 0.5 * inertia_upper[j] * r * r;
        spread += share * share;
        good &= q[j] > q_lower[j] && q[j] < q_upper[j] && fabs(q[j]) < LARGEST;
    }
    return !(good && energy <= V_START && spread <= 1.0);
}

int @p@_step(const @p@_box *box, const double *q, const double *qd, const double *q_d, const double *qd_d,
    const double *qdd_d, @p@_result *out)
{
    double at[N], qd_a[N], qdd_a[N], r[N], spread[N], torque[N], w[NUMBERS], value[COLUMNS], weight[COLUMNS];
    const double *mid = box->mid, *half = box->half;
    double V = 0.0, total = 0.0;
    int flags = 0, good = finite(q, LARGEST) && finite(qd, DBL_MAX) && finite(q_d, DBL_MAX) && finite(qd_d, DBL_MAX)
        && finite(qdd_d, DBL_MAX);
    for (int j = 0; j < N; ++j) {
        const double e = q_d[j] - q[j], de = qd_d[j] - qd[j];
        out->torque[j] = 0.0;
        out->e[j] = e;
        out->de[j] = de;
        out->r[j] = r[j] = de + K_r[j] * e;
        const double least = fabs(r[j]) > r_noise[j] ? fabs(r[j]) - r_noise[j] : 0.0;
        V += 0.5 * inertia_lower[j] * least * least;
        at[j] = q[j] + LEAD * qd[j];
        qd_a[j] = qd_d[j] + K_r[j] * e;
        qdd_a[j] = qdd_d[j] + K_r[j] * de + OWN_DAMPING * r[j];
    }
    out->V = good ? V : INFINITY;
    out->S = INFINITY;
    if (!good)
        return @P@_BAD_INPUT;
    if (!(V <= V_MAX))
        return @P@_ABOVE_V_MAX;
    if (!finite(at, LARGEST))
        return @P@_BAD_INPUT;
    one_regressor(0, at, qd, qdd_a, qd_a, w);
    for (int p = 0; p < COLUMNS; ++p)
        value[p] = weight[p] = 0.0;
    for (int j = 0; j < N; ++j) {
        const double *row = w + first[j], sign = SIGN(qd_a[j]);
        spread[j] = sum_of_products(row + 10 * j, half + 10 * j, COLUMNS - 10 * j, 1) + fabs(sign) * half[FC + j]
            + fabs(qd_a[j]) * half[FV + j] + half[BETA + j];
        total += spread[j] * spread[j] / inertia_lower[j];
        spread[j] /= inertia_lower[j];
        for (int p = 10 * j; p < COLUMNS; ++p) {
            value[p] += r[j] * row[p];
            weight[p] += fabs(row[p]) * spread[j];
        }
    }
    for (int p = 0; p < COLUMNS; ++p)
        value[p] = moved(mid[p], half[p], value[p], weight[p]);
    for (int j = 0; j < N; ++j) {
        const double sign = SIGN(qd_a[j]), s = spread[j];
        torque[j] = K_d[j] * r[j] + sum_of_products(w + first[j] + 10 * j, value + 10 * j, COLUMNS - 10 * j, 0)
            + sign * moved(mid[FC + j], half[FC + j], r[j] * sign, fabs(sign) * s)
            + qd_a[j] * moved(mid[FV + j], half[FV + j], r[j] * qd_a[j], fabs(qd_a[j]) * s)
            + moved(mid[BETA + j], half[BETA + j], r[j], s);
        flags |= fabs(torque[j]) > torque_limit[j] ? @P@_CLIPPED : 0;
    }
    if (!finite(torque, DBL_MAX) || !(total <= DBL_MAX))
        return @P@_BAD_INPUT;
    out->S = sqrt(total);
    for (int j = 0; j < N; ++j)
        out->torque[j] = torque[j] > torque_limit[j] ? torque_limit[j]
            : torque[j] < -torque_limit[j] ? -torque_limit[j] : torque[j];
    return flags | (out->S <= S_MAX ? 0 : @P@_UNPROVED);
}
"""

TEST = """\
#define _POSIX_C_SOURCE 199309L /* the clock: no part of C99 */
#include "@p@.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define N @P@_JOINTS
#define SIZE @P@_PARAMETERS
@DATA@
static int far_off(const char *what, const double *found, const double *expected, int size)
{
    double most = 0.0, gap = 0.0;
    for (int i = 0; i < size; ++i) {
        most = fmax(most, fabs(expected[i]));
        gap = fabs(found[i] - expected[i]) <= gap ? gap : fabs(found[i] - expected[i]); /* NaN is kept */
    }
    if (gap <= @ALLOWED@ * (most + 1.0))
        return 0;
    printf("FAIL %s: off by %.1e of at most %.1e\\n", what, gap, most);
    return 1;
}

int main(void)
{
    static @p@_box box, boxes[STATES];
    static double values[5][N], wide[2][SIZE];
    @p@_result out;
    int failed = 0;
    for (int i = 0; i < STATES; ++i) {
        if (@p@_set_box(&boxes[i], lower + SIZE * i, upper + SIZE * i)) {
            printf("FAIL box %d is refused\\n", i);
            failed = 1;
        }
        const int flags = @p@_step(&boxes[i], q + N * i, qd + N * i, q_d + N * i, qd_d + N * i, qdd_d + N * i, &out);
        failed |= far_off("torque", out.torque, torque + N * i, N) | far_off("r", out.r, r + N * i, N)
            | far_off("V", &out.V, V + i, 1) | far_off("S", &out.S, S + i, 1);
        if (flags != expected_flags[i]) {
            printf("FAIL flags of state %d: %d, expected %d\\n", i, flags, expected_flags[i]);
            failed = 1;
        }
    }
    /* A number that is none, anywhere, commands nothing. */
    for (int which = 0; which < 5 * N; ++which)
        for (int kind = 0; kind < 3; ++kind) {
            const double bad = kind == 0 ? NAN : kind == 1 ? INFINITY : -INFINITY, *sets[5] = {q, qd, q_d, qd_d, qdd_d};
            for (int i = 0; i < 5; ++i)
                memcpy(values[i], sets[i], sizeof values[i]);
            values[which / N][which % N] = bad;
            const int flags = @p@_step(&boxes[0], values[0], values[1], values[2], values[3], values[4], &out);
            int silent = flags == @P@_BAD_INPUT;
            for (int j = 0; j < N; ++j)
                silent &= out.torque[j] == 0.0;
            if (!silent) {
                printf("FAIL input %d that is not finite: flags %d\\n", which, flags);
                failed = 1;
            }
        }
    /* Wider than the prior on either side, not a number, upside down: no box. */
    for (int kind = 0; kind < 5; ++kind) {
        memcpy(wide[0], @p@_prior_lower, sizeof wide[0]);
        memcpy(wide[1], @p@_prior_upper, sizeof wide[1]);
        if (kind < 4)
            wide[kind % 2][SIZE - 1] += kind > 1 ? NAN : kind == 0 ? -1e-3 : 1e-3;
        if (@p@_set_box(&box, wide[kind == 4], wide[kind != 4]) != 1) {
            printf("FAIL a box that is none is taken: %d\\n", kind);
            failed = 1;
        }
    }
    struct timespec from, to;
    double best = INFINITY, sum = 0.0;
    for (int round = 0; round < 20; ++round) {
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int k = 0; k < TICKS / 20; ++k) {
            const int i = k % STATES;
            @p@_step(&boxes[i], q + N * i, qd + N * i, q_d + N * i, qd_d + N * i, qdd_d + N * i, &out);
            sum += out.torque[0];
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        const double took = 1e9 * (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec);
        best = fmin(best, took / (TICKS / 20));
    }
    printf("%s: %d states, %.0f ns a tick%s\\n", failed ? "FAIL" : "ok", STATES, best, sum < INFINITY ? "" : "!");
    return failed;
}
"""

LOOP = """\
/* A loop around the law, to be replaced at its two ends by a driver's callback: measurements and the desired motion
   come in on standard input, a line `q qd q_d qd_d qdd_d` (n numbers each) for each tick; `flags V S torque` goes out.
   The first fault ends it: what follows is the brakes', and a new start is a decision of its own. */
#include "@p@.h"
#include <stdio.h>

int main(void)
{
    static @p@_box box;
    double x[5][@P@_JOINTS];
    @p@_result out;
    if (@p@_set_box(&box, @p@_prior_lower, @p@_prior_upper))
        return 2;
    for (long tick = 0;; ++tick) {
        for (int i = 0; i < 5 * @P@_JOINTS; ++i)
            if (scanf("%lf", &x[i / @P@_JOINTS][i % @P@_JOINTS]) != 1)
                return i == 0 && feof(stdin) ? 0 : 2;
        if (tick == 0 && @p@_why_not_start(x[0], x[1])) {
            fprintf(stderr, "not started: moving, or outside the limits\\n");
            return 3;
        }
        const int flags = @p@_step(&box, x[0], x[1], x[2], x[3], x[4], &out);
        printf("%d %.17g %.17g", flags, out.V, out.S);
        for (int j = 0; j < @P@_JOINTS; ++j)
            printf(" %.17g", out.torque[j]);
        printf("\\n");
        fflush(stdout);
        if (flags & @P@_FAULT) {
            fprintf(stderr, "fault at tick %ld: %s\\n", tick,
                flags & @P@_ABOVE_V_MAX ? "V is above V_max" : "an input cannot be used");
            return 1;
        }
    }
}
"""

README = """\
# Robust law of {name}

C99 without heap, state or libraries (but `sqrt`): `{p}.c`, `{p}.h`. {n} joints: {joints}.

```c
static {p}_box box;
{p}_result out;
{p}_set_box(&box, {p}_prior_lower, {p}_prior_upper);      /* once, and whenever bounds come */
int flags = {p}_step(&box, q, qd, q_d, qd_d, qdd_d, &out); /* every tick, at most {hold} s after the measurement */
if (flags & {P}_FAULT) brake(); else command(out.torque);
```

Build with `cc {flags}`; never with `-ffast-math`. Units: rad, rad/s, rad/s^2, N m; of sliding joints m, m/s, m/s^2, N.
Parameters: {size} numbers in the order of the topic `bounds`.

{test}

## What is proved, and by whom

Gains, as synthesised for the prior box: V_max {V_max} J, V_start {V_start} J, S at most {S}, commands at most {hold} s
old, first effect after at most {delay} s. "Tracking" in docs/understand/guarantees.md says what follows. This file
holds the law, the check of the start and the monitor of V and S. What the theorem needs besides is the caller's:

- the desired motion is certified for the box in use (`safe-sysid plan`), and begins only when `{p}_why_not_start` is 0;
- commands are in time; one that is older than that is covered by nothing here;
- bounds only ever shrink, and come in slowly: give `{p}_set_box` `(1 - s) old + s new`, s from 0 to 1 in some 0.25 s;
- a fault is kept: the law has no memory, and would command again at the next good measurement;
- the step from the torque in force to the law's first one (the package's controller takes control over in a ramp);
- positions of joints that turn on without end are on the branch of q_d.
"""
