/* Runs programs that Luminal's Executable.export wrote. One header, C99 or C++, Linux:

     #include "luminal.h"

     const char *error = NULL;
     const luminal_model *model = luminal_open("model.lum", &error);
     if (!model) { fprintf(stderr, "%s\n", error); return 1; }
     int64_t dims[] = {3};
     const void *inputs[] = {x};
     void *outputs[] = {y};
     error = luminal_run(model, dims, inputs, outputs, 0);

   With -std=c99 define _DEFAULT_SOURCE before it. Compile with -ldl where the C library is older than glibc 2.34. Arrays are row-major, of the
   shapes that `luminal_extents` tells for given dims. Memory for runs is the library's own, laid out
   for the greatest dims: a run allocates nothing. A model runs once at a time. */

#ifndef LUMINAL_H
#define LUMINAL_H

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUMINAL_VERSION 1

typedef struct {
    const char *name;
    int64_t least, most;
} luminal_dim;

/* dtype is NumPy's name of it ("float32", "bfloat16"); shape is a text as "[s, 64]", and axes[k] the
   number of the dim that axis k is, or -1 for another extent: `luminal_extents` gives all. */
typedef struct {
    const char *name;
    const char *dtype;
    int64_t itemsize;
    int64_t rank;
    const char *shape;
    const int64_t *axes;
} luminal_value;

/* What a program keeps from run to run. *data is where the value is now: a run may move it. */
typedef struct {
    luminal_value value;
    int64_t bytes;
    void *const *data;
} luminal_state;

typedef struct {
    int64_t version;
    const char *title; /* what it takes and gives, as a text */
    const char *cpu;   /* for which it was made */
    int64_t n_features;
    const char *const *features; /* that it needs, as `luminal_has` takes them */
    int64_t n_dims;
    const luminal_dim *dims;
    int64_t n_inputs;
    const luminal_value *inputs;
    int64_t n_outputs;
    const luminal_value *outputs;
    int64_t n_states;
    const luminal_state *states;
    int64_t n_messages;
    const char *const *messages;
    void *weights; /* where weights of a file of their own belong; else NULL */
    int64_t weight_bytes;
    const char *weight_file; /* as seen from the program's folder */
    const char *stamp;       /* with which that file begins; weights follow at 65536 */
    int64_t memory; /* bytes that runs use, beside weights, arguments and results */
    void (*shapes)(const int64_t *dims, int64_t *extents);
    int64_t (*run)(const int64_t *dims, const void *const *inputs, void *const *outputs,
                   int64_t threads);
    void (*reset)(void);
} luminal_model;

/* The error of this thread, as `luminal_open` tells it. */
static char luminal_text[512];

#ifdef __aarch64__
#include <sys/auxv.h>

/* Whether this CPU has a feature, by the kernel's bits; the second word's count on from 64. */
static inline int luminal_has(const char *feature) {
    static const struct {
        const char *name;
        int bit;
    } rows[] = {{"neon", 1},     {"lse", 8},  {"fullfp16", 10}, {"rdm", 12},      {"dotprod", 20},
                {"sve", 22},     {"sve2", 65}, {"i8mm", 77},     {"bf16", 78}};
    unsigned long words[2] = {getauxval(16), getauxval(26)}; /* AT_HWCAP, AT_HWCAP2 */
    for (unsigned k = 0; k < sizeof rows / sizeof *rows; ++k)
        if (!strcmp(feature, rows[k].name)) return (int)(words[rows[k].bit / 64] >> rows[k].bit % 64 & 1);
    return 0;
}
#else
/* Whether this CPU has a feature, by /proc/cpuinfo; 1 where that does not tell. */
static inline int luminal_has(const char *feature) {
    static char line[16384];
    static int is_read = 0;
    if (!is_read) {
        FILE *file = fopen("/proc/cpuinfo", "r");
        while (file && !is_read && fgets(line, sizeof line, file))
            is_read = !strncmp(line, "flags", 5);
        if (file) fclose(file);
        if (!is_read) return 1;
    }
    size_t length = strlen(feature);
    for (const char *at = line; (at = strstr(at, feature)) != NULL; at += length)
        if (at > line && strchr(" \t:", at[-1]) && strchr(" \n", at[length])) return 1;
    return 0;
}
#endif

/* Maps the weights of a file of their own to where they belong; 0, or an error is in the text. */
static inline int luminal_weights(const luminal_model *model, const char *path) {
    char name[4096], head[65];
    const char *slash = strrchr(path, '/');
    int length = slash && model->weight_file[0] != '/' ? (int)(slash - path + 1) : 0;
    snprintf(name, sizeof name, "%.*s%s", length, path, model->weight_file);
    size_t stamp = strlen(model->stamp);
    struct stat status;
    int file = open(name, O_RDONLY);
    int fits = file >= 0 && stamp < sizeof head && fstat(file, &status) == 0 &&
               status.st_size >= 65536 + model->weight_bytes &&
               read(file, head, stamp) == (ssize_t)stamp && !memcmp(head, model->stamp, stamp);
    void *place = fits ? mmap(model->weights, (size_t)model->weight_bytes, PROT_READ,
                              MAP_PRIVATE | MAP_FIXED, file, 65536)
                       : MAP_FAILED;
    if (file >= 0) close(file);
    if (place == model->weights) return 0;
    snprintf(luminal_text, sizeof luminal_text, "%.400s: %s", name,
             file < 0 ? "there is no such file of weights"
             : !fits  ? "these are not the weights of this program, or not all of them"
                      : "cannot be mapped");
    return 1;
}

/* The program in a file, which stays loaded, once for a process; NULL with a text in *error where it cannot run here. A
   file that was cut short is refused by Python's loader only: check sizes of what you copy. */
static inline const luminal_model *luminal_open(const char *path, const char **error) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const luminal_model *model =
        library ? (const luminal_model *)dlsym(library, "luminal_model") : NULL;
    if (!model) {
        const char *text = dlerror();
        *error = text ? text : "is no exported program";
        return NULL;
    }
    if (model->version != LUMINAL_VERSION) {
        snprintf(luminal_text, sizeof luminal_text, "%s: has version %lld of the format, not %d",
                 path, (long long)model->version, LUMINAL_VERSION);
        *error = luminal_text;
        return NULL;
    }
    for (int64_t k = 0; k < model->n_features; ++k) {
        if (!luminal_has(model->features[k])) {
            snprintf(luminal_text, sizeof luminal_text,
                     "%s: needs a CPU with %s (it was made for %s)", path, model->features[k],
                     model->cpu);
            *error = luminal_text;
            return NULL;
        }
    }
    if (model->weights && luminal_weights(model, path)) {
        *error = luminal_text;
        return NULL;
    }
    return model;
}

/* The extents of all inputs, then of all outputs, one behind the other, for these dims. */
static inline void luminal_extents(const luminal_model *model, const int64_t *dims,
                                   int64_t *extents) {
    model->shapes(dims, extents);
}

/* Runs once; NULL, or what was wrong: then nothing was computed and no State has changed. The text
   of an index that is out of range stays until a run finds another one.
   `dims` are in the order of model->dims; `threads` at most, 0 for all CPUs of the process. */
static inline const char *luminal_run(const luminal_model *model, const int64_t *dims,
                                      const void *const *inputs, void *const *outputs,
                                      int64_t threads) {
    int64_t number = model->run(dims, inputs, outputs, threads);
    return number ? model->messages[number] : NULL;
}

/* Gives States the values with which they were exported. No run may be under way. */
static inline void luminal_reset(const luminal_model *model) { model->reset(); }

#ifdef __cplusplus
}
#endif

#endif
