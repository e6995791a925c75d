/* The launches that are neither cudaLaunchKernel nor its driver twin: cooperative ones, and those of before CUDA 4. */
#include "check.h"

typedef void *module_t, *function_t;
typedef struct { function_t function; unsigned grid[3], block[3], shared; stream_t stream; void **params; } launch_t;

int cuModuleLoadData(module_t *, const void *), cuModuleGetFunction(function_t *, module_t, const char *);
int cuLaunchCooperativeKernel(function_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, stream_t, void **);
int cuLaunchCooperativeKernelMultiDevice(launch_t *, unsigned, unsigned);
int cuFuncSetBlockShape(function_t, int, int, int), cuFuncSetSharedSize(function_t, unsigned);
int cuParamSetSize(function_t, unsigned), cuParamSeti(function_t, int, unsigned), cuParamSetv(function_t, int, void *, unsigned);
int cuLaunchGrid(function_t, int, int), cuLaunchGridAsync(function_t, int, int, stream_t), cuLaunch(function_t);
int cuStreamWaitValue32_v2(stream_t, u64, unsigned, unsigned);

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry set(\n.param .u64 p,\n.param .u32 value\n)\n{\n ret;\n}\n";
static unsigned threads;
void simcuda_kernel_set(void **params, const unsigned *grid, const unsigned *block, unsigned shared) {
  threads = grid[0] * grid[1] * block[0] * block[1] + shared;
  **(int **)params[0] = *(int *)params[1];
}

static function_t function_of_current(void) {
  module_t module;
  function_t function;
  OK(cuModuleLoadData(&module, ptx));
  OK(cuModuleGetFunction(&function, module, "set"));
  return function;
}

int main(void) {
  volatile unsigned *gate = pinned(4);
  stream_t s[2] = {new_stream()};
  function_t f[2] = {function_of_current()};
  int *p[2] = {on_device(4)}, value = 5;
  void *params[] = {&p[0], &value}, *others[] = {&p[1], &value};
  OK(cuLaunchCooperativeKernel(f[0], 2, 1, 1, 8, 1, 1, 0, s[0], params));
  OK(cudaStreamSynchronize(s[0]));
  CHECK(*p[0] == 5 && threads == 16);
  OK(cuFuncSetBlockShape(f[0], 4, 2, 1));
  OK(cuFuncSetSharedSize(f[0], 100));
  OK(cuParamSetSize(f[0], 12));
  OK(cuParamSetv(f[0], 0, &p[0], 8));
  OK(cuParamSeti(f[0], 8, 6));
  OK(cuLaunchGridAsync(f[0], 3, 2, s[0]));
  OK(cuParamSeti(f[0], 8, 7)); /* for the next launch */
  OK(cudaStreamSynchronize(s[0]));
  CHECK(*p[0] == 6 && threads == 48 + 100);
  OK(cuLaunch(f[0]));
  OK(cudaDeviceSynchronize());
  CHECK(*p[0] == 7 && threads == 8 + 100);
  IS(cuLaunchGrid(f[0], 0, 1), 1);
  IS(cuFuncSetBlockShape(s[0], 1, 1, 1), 400);
  /* On both devices: after what was in either stream, and before what comes in either. */
  OK(cudaSetDevice(1));
  s[1] = new_stream();
  f[1] = function_of_current();
  p[1] = on_device(4);
  *p[1] = 0;
  launch_t both[] = {{f[0], {1, 1, 1}, {1, 1, 1}, 0, s[0], params}, {f[1], {1, 1, 1}, {1, 1, 1}, 0, s[1], others}};
  OK(cuStreamWaitValue32_v2(s[0], (u64)gate, 1, 1));
  OK(cuLaunchCooperativeKernelMultiDevice(both, 2, 0));
  for (int i = 0; i < 10; i++) IS(cudaStreamQuery(s[1]), 600);
  CHECK(*p[1] == 0);
  *gate = 1;
  OK(cudaStreamSynchronize(s[1]));
  CHECK(*p[0] == 5 && *p[1] == 5);
  both[1].stream = NULL;
  IS(cuLaunchCooperativeKernelMultiDevice(both, 2, 0), 400);
  both[1].stream = s[0];
  IS(cuLaunchCooperativeKernelMultiDevice(both, 2, 0), 101);
  IS(cuLaunchCooperativeKernelMultiDevice(both, 0, 0), 1);
  return 0;
}
