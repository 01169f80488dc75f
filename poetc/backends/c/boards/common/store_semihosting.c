/* A page store in the file storage.bin, in the directory in which the emulator runs. */
#include <stddef.h>

#include "board.h"
#include "semihosting.h"

typedef struct {
    poetc_store store;
    int32_t handle;
} file_store;

static file_store file;

static poetc_status read_file(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                              uint32_t *done)
{
    (void)store;
    if (!semihosting_seek(file.handle, offset)) {
        return POETC_OUT_OF_RANGE;
    }
    *done = semihosting_read(file.handle, data, length);
    return POETC_OK;
}

static poetc_status write_file(poetc_store *store, uint32_t offset, const void *data,
                               uint32_t length, uint32_t *done)
{
    (void)store;
    if (!semihosting_seek(file.handle, offset)) {
        return POETC_OUT_OF_RANGE;
    }
    *done = semihosting_write(file.handle, data, length);
    return POETC_OK;
}

static const poetc_store_operations file_operations = {
    .read = read_file,
    .write = write_file,
    .start_read = NULL,
    .start_write = NULL,
    .wait = NULL,
    .sync = NULL,
};

void board_init(void)
{
}

poetc_status board_open_store(poetc_store **store, bool keep)
{
    file.store.operations = &file_operations;
    file.handle = semihosting_open("storage.bin", keep ? SEMIHOSTING_KEEP : SEMIHOSTING_FRESH);
    *store = &file.store;
    if (file.handle < 0) {
        semihosting_print("storage.bin cannot be opened");
        semihosting_print(keep ? "; it is made by poetc pack DIRECTORY PARAMS.npz -o storage.bin\n"
                               : "\n");
        return POETC_READ_FAILED;
    }
    return POETC_OK;
}

poetc_status board_close_store(void)
{
    return semihosting_close(file.handle) ? POETC_OK : POETC_WRITE_FAILED;
}
