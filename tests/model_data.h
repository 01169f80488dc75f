/* Data of models in files: DIRECTORY/LETTER/KINDi.bin. C99 and C++17. */
#ifndef MODEL_DATA_H
#define MODEL_DATA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

static bool move(const char *directory, char model, const char *kind, uint32_t i, void *data,
                 uint32_t bytes, bool in)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%c/%s%lu.bin", directory, model, kind, (unsigned long)i);
    FILE *const file = fopen(path, in ? "rb" : "wb");
    if (file == NULL) {
        perror(path);
        return false;
    }
    const size_t done = in ? fread(data, 1, bytes, file) : fwrite(data, 1, bytes, file);
    return fclose(file) == 0 && done == bytes;
}

#endif
