/* Programs that load device code of their own, over the simulated libraries; the first argument says which. Each kernel gets
 * a pointer inside a struct, on a stream that has not waited for its memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long u64;
typedef void *handle_t;
int cudaStreamCreateWithFlags(handle_t *, unsigned), cudaDeviceSynchronize(void), cudaMallocAsync(void **, size_t, handle_t);
int cudaMalloc(void **, size_t), cudaDeviceReset(void), cudaSetDevice(int), cudaFreeAsync(void *, handle_t);
int cuCtxCreate_v2(handle_t *, unsigned, int), cuCtxDestroy_v2(handle_t);
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

/* Another module comes and goes between two launches. */
static void unloads_another(void) {
  int number = 1;
  void *parameters[] = {&number};
  handle_t kernel = look_up(load(TEXT(".param .u32 other", "k")), "k");
  for (int i = 0; i < 3; i++) {
    handle_t other = load(TEXT(".param .u32 other", "l"));
    launch(kernel, one, parameters);
    launch(look_up(other, "l"), one, parameters);
    OK(cudaDeviceSynchronize());
    OK(cuModuleUnload(other));
  }
}

/* A library's kernel, looked up in the module that stands for it, ends with it. */
static void unloads_library(void) {
  int number = 1;
  void *parameters[] = {&number};
  handle_t library, module;
  OK(cuLibraryLoadData(&library, TEXT(".param .u32 other", "k"), NULL, NULL, 0, NULL, NULL, 0));
  OK(cuLibraryGetModule(&module, library));
  launch(look_up(module, "k"), two, parameters);
  OK(cudaDeviceSynchronize());
  OK(cuLibraryUnload(library));
  race(look_up(load(TEXT(VIEW, "k")), "k"));
}

/* The end of a context has all kernels forgotten. */
static void other_context(void) {
  int number = 1;
  void *parameters[] = {&number}, *context;
  handle_t kernel = look_up(load(TEXT(".param .u32 other", "k")), "k");
  for (int i = 0; i < 3; i++) {
    launch(kernel, one, parameters);
    OK(cudaDeviceSynchronize());
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuCtxDestroy_v2(context));
    OK(cudaSetDevice(0));
  }
}

/* A fat binary without PTX: nothing that can be read, here. */
static void without_text(void) {
  unsigned *copy = malloc(sizeof image);
  handle_t module;
  memcpy(copy, &image, sizeof image);
  copy[4] = 9 | 0x101 << 16;
  OK(cuModuleLoadData(&module, copy));
  free(copy);
}

#define READS "_Z4lookPKf4View"
#define WRITES "_Z4lookPf4View"
#define POINTER ".param .u64 p, .param .align 8 .b8 view[24]"
static void reads(void) { twice(READS, TEXT(POINTER, READS)); }
static void writes(void) { twice(WRITES, TEXT(POINTER, WRITES)); }

/* Longer than what is copied where the driver can be asked. */
static void of_long_text(void) {
  static char text[(1 << 20) + 4096];
  memset(text, '\n', sizeof text - 1);
  memcpy(text, TEXT(VIEW, "k"), sizeof TEXT(VIEW, "k") - 1);
  race(look_up(load(text), "k"));
}

#define CODE(body) ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 k_param_0, .param .u32 k_param_1, " \
  ".param .align 8 .b8 k_param_2[16]) {\n ld.param.u64 %rd1, [k_param_0];\n ld.param.u32 %r1, [k_param_1];\n cvta.to.global.u64 %rd2, %rd1;\n" \
  " mov.u32 %r2, %tid.x;\n mul.wide.u32 %rd3, %r2, 4;\n add.s64 %rd4, %rd2, %rd3;\n" body "\n ret;\n}\n"
#define LOOKS "ld.global.u32 %r3, [%rd4];"
#define UPDATES "red.global.add.u32 [%rd4], 1;"
#define WRITES_IT "st.global.u32 [%rd4], %r1;"
#define WRITES_PART "mul.wide.u32 %rd5, %r1, 4; add.s64 %rd6, %rd4, %rd5; st.global.u32 [%rd6], %r1;"
#define FOLLOWS "ld.param.u64 %rd7, [k_param_2+8]; cvta.to.global.u64 %rd8, %rd7; st.global.u32 [%rd8], %r1; st.global.u32 [%rd4], %r1;"

/* The same pointer on two streams, with two integers. */
static void coded(const char *text, unsigned first, unsigned second) {
  void *pointer, *members[2] = {NULL, NULL};
  void *parameters[] = {&pointer, &first, members};
  handle_t function = look_up(load(text), "k");
  OK(cudaMalloc(&pointer, 4096));
  launch(function, one, parameters);
  parameters[1] = &second;
  launch(function, two, parameters);
}

/* A member that holds a pointer to freed memory. */
static void stale(const char *text) {
  unsigned number = 1;
  void *pointer, *members[2];
  void *parameters[] = {&pointer, &number, members};
  handle_t function = look_up(load(text), "k");
  OK(cudaMalloc(&pointer, 4096));
  OK(cudaMallocAsync(&members[1], 4096, one));
  members[0] = members[1];
  OK(cudaFreeAsync(members[1], one));
  launch(function, one, parameters);
}

static void code_looks(void) { coded(CODE(LOOKS), 1, 2); }
static void code_updates(void) { coded(CODE(UPDATES), 1, 2); }
static void code_writes(void) { coded(CODE(WRITES_IT), 1, 2); }
static void code_writes_parts(void) { coded(CODE(WRITES_PART), 0, 100); }
static void code_writes_a_part(void) { coded(CODE(WRITES_PART), 100, 100); }
static void code_ignores(void) { stale(CODE(WRITES_IT)); }
static void code_follows(void) { stale(CODE(FOLLOWS)); }

static const struct { const char *name; void (*run)(void); } programs[] = {
  {"unloads-another", unloads_another}, {"unloads-library", unloads_library}, {"other-context", other_context},
  {"without-text", without_text},
  {"long-text", of_long_text}, {"code-looks", code_looks}, {"code-updates", code_updates}, {"code-writes", code_writes},
  {"code-writes-parts", code_writes_parts}, {"code-writes-a-part", code_writes_a_part}, {"code-ignores", code_ignores},
  {"code-follows", code_follows},
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
