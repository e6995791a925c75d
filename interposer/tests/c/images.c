/* Programs that load device code of their own, over the simulated libraries; the first argument says which. Each kernel gets
 * a pointer inside a struct, on a stream that has not waited for its memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef void *handle_t;
int cudaStreamCreateWithFlags(handle_t *, unsigned), cudaDeviceSynchronize(void), cudaMallocAsync(void **, size_t, handle_t);
int cudaMalloc(void **, size_t), cudaDeviceReset(void);
int cuModuleLoadData(handle_t *, const void *), cuModuleLoad(handle_t *, const char *), cuModuleUnload(handle_t);
int cuModuleGetFunction(handle_t *, handle_t, const char *);
int cuLibraryLoadData(handle_t *, const void *, void *, void *, unsigned, void *, void *, unsigned);
int cuLibraryGetKernel(handle_t *, handle_t, const char *), cuKernelGetFunction(handle_t *, handle_t);
int cuLibraryGetModule(handle_t *, handle_t), cuLibraryUnload(handle_t);
int cuLaunchKernel(handle_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle_t, void **, void **);

#define OK(call)                                                       \
  do {                                                                 \
    int status = (call);                                               \
    if (status) {                                                      \
      fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, status);   \
      exit(1);                                                         \
    }                                                                  \
  } while (0)

#define TEXT(parameters, name) ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry " name "(" parameters "){ ret; }\n"
#define VIEW ".param .f32 f, .param .align 8 .b8 view[24]"

struct view { int count; void *data; long more; };
static handle_t one, two;

static handle_t new_stream(void) {
  handle_t stream;
  OK(cudaStreamCreateWithFlags(&stream, 1));
  return stream;
}

static void launch(handle_t function, handle_t stream, void **parameters) {
  OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL));
}

/* Memory of one stream used on another: SC101. */
static void race(handle_t function) {
  struct view view = {1, NULL, 0};
  float number = 1;
  void *parameters[] = {&number, &view};
  OK(cudaMallocAsync(&view.data, 4096, one));
  launch(function, two, parameters);
}

static handle_t load(const char *text) {
  char *copy = strdup(text);
  handle_t module;
  OK(cuModuleLoadData(&module, copy));
  memset(copy, '#', strlen(copy));
  free(copy);
  return module;
}

static handle_t look_up(handle_t module, const char *name) {
  handle_t function;
  OK(cuModuleGetFunction(&function, module, name));
  return function;
}

static void of_text(void) { race(look_up(load(TEXT(VIEW, "k")), "k")); }

static const struct {
  unsigned magic; unsigned short version, header; u64 length;
  unsigned short kind, entry_version; unsigned start; u64 size; unsigned more[6]; u64 flags, none, uncompressed;
  char text[sizeof TEXT(VIEW, "k")];
} image = {0xba55ed50, 1, 16, 64 + sizeof image.text, 1, 0x101, 64, sizeof image.text, {0}, 0x11, 0, 0, TEXT(VIEW, "k")};
struct { unsigned magic, version; const void *data; void *name; } wrapper = {0x466243b1, 1, &image, NULL};

static handle_t load_library(void) {
  handle_t library;
  OK(cuLibraryLoadData(&library, &wrapper, NULL, NULL, 0, NULL, NULL, 0));
  return library;
}

static void of_library(void) {
  handle_t kernel;
  OK(cuLibraryGetKernel(&kernel, load_library(), "k"));
  race(kernel);
}

static void of_library_function(void) {
  handle_t kernel, function;
  OK(cuLibraryGetKernel(&kernel, load_library(), "k"));
  OK(cuKernelGetFunction(&function, kernel));
  race(function);
}

static void of_library_module(void) {
  handle_t module;
  OK(cuLibraryGetModule(&module, load_library()));
  race(look_up(module, "k"));
}

static void write_file(const char *text) {
  FILE *file = fopen("module.ptx", "w");
  fputs(text, file);
  fclose(file);
}

static void of_file(void) {
  handle_t module;
  write_file(TEXT(VIEW, "k"));
  OK(cuModuleLoad(&module, "module.ptx"));
  write_file(TEXT(".param .u32 other", "k"));
  race(look_up(module, "k"));
}

/* The same name, first with a shorter list. */
static void reloaded(void) {
  int number = 1;
  void *parameters[] = {&number};
  handle_t module = load(TEXT(".param .u32 other", "k"));
  launch(look_up(module, "k"), two, parameters);
  OK(cudaDeviceSynchronize());
  OK(cuModuleUnload(module));
  race(look_up(load(TEXT(VIEW, "k")), "k"));
}

/* Once the device was reset, the kernel's own parameters are all that is read. */
static void reset(void) {
  int number = 1;
  void *parameters[] = {&number};
  race(look_up(load(TEXT(VIEW, "k")), "k"));
  OK(cudaDeviceReset());
  one = new_stream(), two = new_stream();
  launch(look_up(load(TEXT(".param .u32 other", "k")), "k"), two, parameters);
}

static void twice(const char *name, const char *text) {
  struct view view = {1, NULL, 0};
  void *pointer;
  void *parameters[] = {&pointer, &view};
  handle_t function = look_up(load(text), name);
  OK(cudaMalloc(&pointer, 4096));
  launch(function, one, parameters);
  launch(function, two, parameters);
}

#define READS "_Z4lookPKf4View"
#define WRITES "_Z4lookPf4View"
#define POINTER ".param .u64 p, .param .align 8 .b8 view[24]"
static void reads(void) { twice(READS, TEXT(POINTER, READS)); }
static void writes(void) { twice(WRITES, TEXT(POINTER, WRITES)); }

static const struct { const char *name; void (*run)(void); } programs[] = {
  {"text", of_text}, {"library", of_library}, {"library-function", of_library_function}, {"library-module", of_library_module},
  {"file", of_file}, {"reloaded", reloaded}, {"reset", reset}, {"reads", reads}, {"writes", writes},
};

int main(int count, char **arguments) {
  for (size_t i = 0; count > 1 && i < sizeof programs / sizeof *programs; i++) {
    if (strcmp(arguments[1], programs[i].name) == 0) {
      one = new_stream(), two = new_stream();
      programs[i].run();
      OK(cudaDeviceSynchronize());
      puts(arguments[1]);
      return 0;
    }
  }
  return 1;
}
