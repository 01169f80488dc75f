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

static const poetc_store_operations file_operations = {
    .read = read_file,
    .write = write_file,
    .start_read = NULL,
    .start_write = NULL,
    .wait = NULL,
};

poetc_status poetc_file_store_open(poetc_file_store *file, const char *path)
{
    file->store.operations = &file_operations;
    file->file = fopen(path, "w+b");
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

poetc_status poetc_file_store_close(poetc_file_store *file)
{
    const int failed = fclose(file->file);
    file->file = NULL;
    return failed ? POETC_WRITE_FAILED : POETC_OK;
}
