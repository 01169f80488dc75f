/* The version of the runtime: of all files that are the same for every model. A program has them
 * once, however many models there are in it.
 */
#ifndef POETC_VERSION_H
#define POETC_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

#define POETC_VERSION "0.0.0"
#define POETC_VERSION_MAJOR 0
#define POETC_VERSION_MINOR 0
#define POETC_VERSION_PATCH 0

/* A number of the text of the runtime. */
#define POETC_RUNTIME_ID 0u

/* In poetc_store.c. Each model wants the one of the runtime that it was generated with, and does
 * not link with another.
 */
#define POETC_RUNTIME poetc_runtime_0_0_0_00000000
extern const unsigned int POETC_RUNTIME;

#ifdef __cplusplus
}
#endif

#endif
