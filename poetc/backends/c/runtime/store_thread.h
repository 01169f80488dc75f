/* A page store whose transfers run in a thread of their own, on top of another store: what DMA does
 * on a microcontroller, for hosts with POSIX threads.
 */
#ifndef POETC_STORE_THREAD_H
#define POETC_STORE_THREAD_H

#include <pthread.h>

#include "poetc_store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    poetc_store store; /* pass &thread.store to the step */
    poetc_store *inner;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows, and transfers in the queue */
    pthread_cond_t change;
    poetc_transfer *first; /* the queue: the one that is being done, and those that wait for it */
    poetc_transfer *last;
    bool stop;
} poetc_thread_store;

/* Starts the thread; false if there is none to be had. `inner` is its own from here on. */
bool poetc_thread_store_open(poetc_thread_store *thread, poetc_store *inner);

/* Ends the thread, once the queue is empty. */
void poetc_thread_store_close(poetc_thread_store *thread);

#ifdef __cplusplus
}
#endif

#endif
