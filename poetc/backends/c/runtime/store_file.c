#if defined(__unix__) || defined(__APPLE__)
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200112L /* descriptors of files, which C99 does not have */
#endif
#if defined(__APPLE__) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE /* flock */
#endif
#define HAS_DESCRIPTORS 1
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#else
#define HAS_DESCRIPTORS 0
#endif

#include "store_file.h"

#include <limits.h>
#include <stddef.h>

static bool seek(const poetc_file_store *file, uint32_t offset)
{
#if LONG_MAX < UINT32_MAX
    if (offset > (uint32_t)LONG_MAX) {
        return false;
    }
#endif
    clearerr(file->file);
    return fseek(file->file, (long)offset, SEEK_SET) == 0;
}

static poetc_status read_file(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                              uint32_t *done)
{
    /* The store is the first member of its handle. */
    const poetc_file_store *file = (const poetc_file_store *)(const void *)store;
    if (!seek(file, offset)) {
        return POETC_OUT_OF_RANGE;
    }
    *done = (uint32_t)fread(data, 1, length, file->file);
    return ferror(file->file) ? POETC_READ_FAILED : POETC_OK;
}

static poetc_status write_file(poetc_store *store, uint32_t offset, const void *data,
                               uint32_t length, uint32_t *done)
{
    const poetc_file_store *file = (const poetc_file_store *)(const void *)store;
    if (!seek(file, offset)) {
        return POETC_OUT_OF_RANGE;
    }
    *done = (uint32_t)fwrite(data, 1, length, file->file);
    /* Without this, a full disk would show up only later, or never. */
    return fflush(file->file) == 0 && !ferror(file->file) ? POETC_OK : POETC_WRITE_FAILED;
}

static poetc_status sync_file(poetc_store *store)
{
    const poetc_file_store *file = (const poetc_file_store *)(const void *)store;
    if (fflush(file->file) != 0) {
        return POETC_WRITE_FAILED;
    }
#if HAS_DESCRIPTORS
    if (fsync(fileno(file->file)) != 0) {
        return POETC_WRITE_FAILED;
    }
#endif
    return POETC_OK;
}

static const poetc_store_operations file_operations = {
    .read = read_file,
    .write = write_file,
    .start_read = NULL,
    .start_write = NULL,
    .wait = NULL,
    .sync = sync_file,
};

#if HAS_DESCRIPTORS
static poetc_status lock(int descriptor, const char *path, const struct stat *opened)
{
#ifndef POETC_NO_FILE_LOCK
    struct stat named;
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
        return errno == EWOULDBLOCK ? POETC_IN_USE : POETC_WRITE_FAILED;
    }
    /* Another file may have taken its place since it was opened. */
    if (stat(path, &named) != 0 || opened->st_dev != named.st_dev
        || opened->st_ino != named.st_ino) {
        return POETC_IN_USE;
    }
#else
    (void)descriptor;
    (void)path;
    (void)opened;
#endif
    return POETC_OK;
}

/* The file, empty if `fresh`: not before it is locked. */
static poetc_status open_stream(poetc_file_store *file, const char *path, bool fresh)
{
    const int descriptor = open(path, fresh ? O_RDWR | O_CREAT : O_RDWR, 0666);
    if (descriptor < 0) {
        return POETC_WRITE_FAILED;
    }
    struct stat opened;
    poetc_status status = POETC_WRITE_FAILED;
    if (fstat(descriptor, &opened) == 0) {
        status = lock(descriptor, path, &opened);
    }
    if (status == POETC_OK && fresh && S_ISREG(opened.st_mode) && ftruncate(descriptor, 0) != 0) {
        status = POETC_WRITE_FAILED;
    }
    file->file = status == POETC_OK ? fdopen(descriptor, "r+b") : NULL;
    if (file->file == NULL) {
        const int reason = errno;
        (void)close(descriptor);
        errno = reason;
        return status == POETC_OK ? POETC_WRITE_FAILED : status;
    }
    return POETC_OK;
}
#else
static poetc_status open_stream(poetc_file_store *file, const char *path, bool fresh)
{
    file->file = fopen(path, fresh ? "w+b" : "r+b");
    return file->file == NULL ? POETC_WRITE_FAILED : POETC_OK;
}
#endif

static poetc_status open_file(poetc_file_store *file, const char *path, bool fresh)
{
    file->store.operations = &file_operations;
    const poetc_status status = open_stream(file, path, fresh);
    if (status != POETC_OK) {
        return status;
    }
    /* Pages are large, and what is read back should come from the file. */
    if (setvbuf(file->file, NULL, _IONBF, 0) != 0) {
        fclose(file->file);
        return POETC_WRITE_FAILED;
    }
    return POETC_OK;
}

poetc_status poetc_file_store_open(poetc_file_store *file, const char *path)
{
    return open_file(file, path, true);
}

poetc_status poetc_file_store_open_image(poetc_file_store *file, const char *path)
{
    return open_file(file, path, false);
}

poetc_status poetc_file_store_close(poetc_file_store *file)
{
    const int failed = fclose(file->file);
    file->file = NULL;
    return failed ? POETC_WRITE_FAILED : POETC_OK;
}
