/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include "whet_inline.h"

#include "whet_threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

/* A pool of worker threads beside the calling thread. They spin for a while before they sleep,
 * because the time between two kernels of a step is too short for a wake-up. The results do not
 * depend on which thread runs a piece of work, nor on the number of pieces. */
enum { MOST = 64, PATIENCE = 20000, PIECES = 2, STACK = 1 << 20, WAKING = 8 };

typedef void part_t(const void *args, int32_t first, int32_t end);

typedef struct {
    atomic_int busy;    /* a caller's work is running */
    atomic_int open;    /* and pieces of it may be left */
    atomic_int inside;  /* threads taking part */
    atomic_int next;    /* next piece */
    atomic_uint turn;   /* counts announced jobs */
    atomic_int helpers; /* wanted threads, without the caller */
    atomic_int asleep;  /* sleeping threads */
    int started;        /* existing threads */
    pthread_t threads[MOST];
    part_t *part; /* the job: `units`, split into `pieces` */
    const void *args;
    int32_t units, pieces;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
} pool_t;

static struct {
    _Atomic(pool_t *) made; /* NULL until more than one thread is requested */
    atomic_int lock;        /* the number of threads is being changed */
} pool;

static void breathe(int32_t spins) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
    if (spins % 1024 == 1023) sched_yield();
}

/* Runs pieces until all are taken. */
static void take_pieces(pool_t *p) {
    for (;;) {
        const int32_t i = atomic_fetch_add(&p->next, 1);
        if (i >= p->pieces) return;
        const int32_t first = (int32_t)((int64_t)p->units * i / p->pieces);
        p->part(p->args, first, (int32_t)((int64_t)p->units * (i + 1) / p->pieces));
    }
}

/* Returns when a job other than number `seen` was announced. */
static void wait_for_work(pool_t *p, unsigned seen) {
    for (int32_t i = 0; i < PATIENCE; i++) {
        if (atomic_load(&p->turn) != seen) return;
        breathe(i);
    }
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->asleep, 1);
    while (atomic_load(&p->turn) == seen) pthread_cond_wait(&p->wake, &p->mutex);
    atomic_fetch_sub(&p->asleep, 1);
    pthread_mutex_unlock(&p->mutex);
}

typedef struct {
    pool_t *pool;
    int number;
} helper_t;

/* Exits when it is no longer wanted. */
static void *help(void *argument) {
    const helper_t self = *(helper_t *)argument;
    pool_t *p = self.pool;
    free(argument);
    whet_flush_subnormals();
    for (unsigned seen = 0; self.number < atomic_load(&p->helpers);) {
        wait_for_work(p, seen);
        seen = atomic_load(&p->turn);
        atomic_fetch_add(&p->inside, 1);
        if (atomic_load(&p->open)) take_pieces(p);
        atomic_fetch_sub(&p->inside, 1);
    }
    return NULL;
}

/* Announces a change. */
static void announce(pool_t *p) {
    atomic_fetch_add(&p->turn, 1);
    if (atomic_load(&p->asleep) == 0) return;
    pthread_mutex_lock(&p->mutex);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
}

/* A child process does not inherit its parent's threads. */
static void forget_threads(void) {
    atomic_store(&pool.made, NULL);
    atomic_store(&pool.lock, 0);
}

static pool_t *make_pool(void) {
    pool_t *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_atfork(NULL, NULL, forget_threads);
    atomic_store(&pool.made, p);
    return p;
}

/* Adds a thread, if the system allows it. */
static int start_helper(pool_t *p) {
    pthread_attr_t attributes;
    helper_t *self = malloc(sizeof *self);
    if (self == NULL || pthread_attr_init(&attributes) != 0) {
        free(self);
        return 0;
    }
    self->pool = p;
    self->number = p->started;
    pthread_attr_setstacksize(&attributes, STACK);
    const int failed = pthread_create(&p->threads[p->started], &attributes, help, self);
    pthread_attr_destroy(&attributes);
    if (failed)
        free(self);
    else
        p->started++;
    return !failed;
}

/* formula    returns the threads that kernels use from now on: `count`, or as many as there are;
 *            if count < 1, those that they use already
 * shapes     none
 * aliasing   none
 * rounding   none
 * workspace  the stacks of the threads */
int32_t whet_set_threads(int32_t count) {
    for (int32_t i = 0; atomic_exchange(&pool.lock, 1) != 0; i++) breathe(i);
    pool_t *p = atomic_load(&pool.made);
    const int32_t helpers = whet_min(count, MOST) - 1;
    if (p == NULL && helpers > 0) p = make_pool();
    if (p != NULL && helpers >= 0) {
        atomic_store(&p->helpers, helpers);
        if (helpers < p->started) announce(p);
        for (; p->started > helpers; p->started--) pthread_join(p->threads[p->started - 1], NULL);
        while (p->started < helpers && start_helper(p)) continue;
        atomic_store(&p->helpers, p->started);
    }
    const int32_t now = p == NULL ? 1 : 1 + p->started;
    atomic_store(&pool.lock, 0);
    return now;
}

/* Whether work is worth sharing; it must be WAKING times as large if a thread sleeps. */
static int worth_sharing(pool_t *p, int64_t work) {
    return work >= (atomic_load(&p->asleep) > 0 ? (int64_t)WAKING * WHET_GRAIN : WHET_GRAIN);
}

/* formula    part(args, first, end) for ranges that together are [0, units)
 * shapes     none
 * aliasing   the ranges' results must not overlap
 * rounding   none
 * workspace  none */
void whet_share_work(part_t *part, const void *args, int32_t units, int64_t work) {
    pool_t *p = atomic_load(&pool.made);
    const int32_t helpers = p == NULL ? 0 : atomic_load(&p->helpers);
    int idle = 0;
    if (units < 1) return;
    if (helpers == 0 || units == 1 || !worth_sharing(p, work) ||
        !atomic_compare_exchange_strong(&p->busy, &idle, 1)) {
        part(args, 0, units);
        return;
    }
    p->part = part;
    p->args = args;
    p->units = units;
    p->pieces = whet_min(units, PIECES * (helpers + 1));
    atomic_store(&p->next, 0);
    atomic_store(&p->open, 1);
    announce(p);
    take_pieces(p);
    atomic_store(&p->open, 0);
    for (int32_t i = 0; atomic_load(&p->inside) > 0; i++) breathe(i);
    atomic_store(&p->busy, 0);
}

/* Subnormal numbers are about a hundred times slower and do not matter here. On the processors
 * below they are flushed to zero while a step runs. */

/* formula    returns how the processor treated subnormal numbers before
 * shapes     none
 * aliasing   none
 * rounding   subnormal operands and results are 0 from now on
 * workspace  none */
uint32_t whet_flush_subnormals(void) {
    uint32_t before = 0;
#if defined(__x86_64__) || defined(__SSE__)
    before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040u);
#elif defined(__aarch64__)
    uint64_t word;
    __asm__ volatile("mrs %0, fpcr" : "=r"(word));
    before = (uint32_t)word;
    __asm__ volatile("msr fpcr, %0" : : "r"(word | (UINT64_C(1) << 24)));
#endif
    return before;
}

/* formula    undoes whet_flush_subnormals, which returned `before`
 * shapes     none
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_restore_subnormals(uint32_t before) {
#if defined(__x86_64__) || defined(__SSE__)
    __builtin_ia32_ldmxcsr(before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)before));
#else
    (void)before;
#endif
}
