/* A page store in a file, for hosts with a file system. */
#ifndef POETC_STORE_FILE_H
#define POETC_STORE_FILE_H

#include <stdio.h>

#include "poetc_store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    poetc_store store; /* pass &file.store to the step */
    FILE *file;
} poetc_file_store;

/* Both lock the file until it is closed: two programs on one file would take each other's pages for
 * their own. A file that is locked already is POETC_IN_USE, and is left alone. The lock is advisory
 * (flock); `poetc pack` and `poetc unpack` keep to it. On systems without it, or compiled with
 * -DPOETC_NO_FILE_LOCK for file systems that refuse it, nothing is locked.
 */

/* Opens the file for pages; what it held before is lost. */
poetc_status poetc_file_store_open(poetc_file_store *file, const char *path);

/* Opens a file that exists, such as an image made by `poetc pack`, and keeps what it holds. */
poetc_status poetc_file_store_open_image(poetc_file_store *file, const char *path);

poetc_status poetc_file_store_close(poetc_file_store *file);

#ifdef __cplusplus
}
#endif

#endif
