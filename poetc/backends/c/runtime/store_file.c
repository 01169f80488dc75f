#if defined(__unix__) || defined(__APPLE__)
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200112L /* fileno and fsync, which C99 does not have */
#endif
#define HAS_FSYNC 1
#include <unistd.h>
#else
#define HAS_FSYNC 0
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
#if HAS_FSYNC
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

static poetc_status open_file(poetc_file_store *file, const char *path, const char *mode)
{
    file->store.operations = &file_operations;
    file->file = fopen(path, mode);
    if (file->file == NULL) {
        return POETC_WRITE_FAILED;
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
    return open_file(file, path, "w+b");
}

poetc_status poetc_file_store_open_image(poetc_file_store *file, const char *path)
{
    return open_file(file, path, "r+b");
}

poetc_status poetc_file_store_close(poetc_file_store *file)
{
    const int failed = fclose(file->file);
    file->file = NULL;
    return failed ? POETC_WRITE_FAILED : POETC_OK;
}
