#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200112L /* threads, which C99 does not have */
#endif

#include "store_thread.h"

#include <pthread.h>
#include <stddef.h>

static poetc_thread_store *of(poetc_store *store)
{
    /* The store is the first member of its handle. */
    return (poetc_thread_store *)(void *)store;
}

/* Does a transfer: the data, and the trailer behind them. */
static poetc_status move(poetc_store *inner, poetc_transfer *transfer)
{
    const poetc_store_operations *operations = inner->operations;
    const uint32_t offset = transfer->offset;
    const uint32_t length = transfer->length;
    const bool in = transfer->direction == POETC_TRANSFER_IN;
    uint32_t done = 0;
    poetc_status status = in ? operations->read(inner, offset, transfer->data.in, length, &done)
                             : operations->write(inner, offset, transfer->data.out, length, &done);
    transfer->done = done;
    if (status == POETC_OK && done == length) {
        uint8_t *trailer = transfer->trailer;
        uint32_t end = offset + length;
        done = 0;
        status = in ? operations->read(inner, end, trailer, POETC_TRAILER_BYTES, &done)
                    : operations->write(inner, end, trailer, POETC_TRAILER_BYTES, &done);
        transfer->done += done;
    }
    return status;
}

static void *run(void *argument)
{
    poetc_thread_store *thread = argument;
    pthread_mutex_lock(&thread->mutex);
    for (;;) {
        while (thread->first == NULL && !thread->stop) {
            pthread_cond_wait(&thread->change, &thread->mutex);
        }
        poetc_transfer *transfer = thread->first;
        if (transfer == NULL) {
            break;
        }
        pthread_mutex_unlock(&thread->mutex);
        const poetc_status status = move(thread->inner, transfer);
        pthread_mutex_lock(&thread->mutex);
        transfer->status = status;
        thread->first = transfer->next;
        pthread_cond_broadcast(&thread->change);
    }
    pthread_mutex_unlock(&thread->mutex);
    return NULL;
}

static poetc_status start(poetc_store *store, poetc_transfer *transfer)
{
    poetc_thread_store *thread = of(store);
    pthread_mutex_lock(&thread->mutex);
    transfer->next = NULL;
    if (thread->first == NULL) {
        thread->first = transfer;
    } else {
        thread->last->next = transfer;
    }
    thread->last = transfer;
    pthread_cond_broadcast(&thread->change);
    pthread_mutex_unlock(&thread->mutex);
    return POETC_OK;
}

static bool queued(const poetc_thread_store *thread, const poetc_transfer *transfer)
{
    const poetc_transfer *other = thread->first;
    while (other != NULL && other != transfer) {
        other = other->next;
    }
    return other != NULL;
}

static poetc_status wait(poetc_store *store, poetc_transfer *transfer)
{
    poetc_thread_store *thread = of(store);
    pthread_mutex_lock(&thread->mutex);
    while (queued(thread, transfer)) {
        pthread_cond_wait(&thread->change, &thread->mutex);
    }
    const poetc_status status = transfer->status;
    pthread_mutex_unlock(&thread->mutex);
    return status;
}

/* Returns when the queue is empty: until the next start, the other store is ours. */
static const poetc_store_operations *idle(poetc_thread_store *thread)
{
    pthread_mutex_lock(&thread->mutex);
    while (thread->first != NULL) {
        pthread_cond_wait(&thread->change, &thread->mutex);
    }
    pthread_mutex_unlock(&thread->mutex);
    return thread->inner->operations;
}

static poetc_status read_now(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                             uint32_t *done)
{
    poetc_thread_store *thread = of(store);
    return idle(thread)->read(thread->inner, offset, data, length, done);
}

static poetc_status write_now(poetc_store *store, uint32_t offset, const void *data,
                              uint32_t length, uint32_t *done)
{
    poetc_thread_store *thread = of(store);
    return idle(thread)->write(thread->inner, offset, data, length, done);
}

static poetc_status sync_now(poetc_store *store)
{
    poetc_thread_store *thread = of(store);
    (void)idle(thread);
    return poetc_sync(thread->inner);
}

static const poetc_store_operations thread_operations = {
    .read = read_now,
    .write = write_now,
    .start_read = start,
    .start_write = start,
    .wait = wait,
    .sync = sync_now,
};

bool poetc_thread_store_open(poetc_thread_store *thread, poetc_store *inner)
{
    thread->store.operations = &thread_operations;
    thread->inner = inner;
    thread->first = NULL;
    thread->last = NULL;
    thread->stop = false;
    if (pthread_mutex_init(&thread->mutex, NULL) != 0) {
        return false;
    }
    if (pthread_cond_init(&thread->change, NULL) != 0) {
        pthread_mutex_destroy(&thread->mutex);
        return false;
    }
    if (pthread_create(&thread->thread, NULL, run, thread) != 0) {
        pthread_cond_destroy(&thread->change);
        pthread_mutex_destroy(&thread->mutex);
        return false;
    }
    return true;
}

void poetc_thread_store_close(poetc_thread_store *thread)
{
    pthread_mutex_lock(&thread->mutex);
    thread->stop = true;
    pthread_cond_broadcast(&thread->change);
    pthread_mutex_unlock(&thread->mutex);
    pthread_join(thread->thread, NULL);
    pthread_cond_destroy(&thread->change);
    pthread_mutex_destroy(&thread->mutex);
}
