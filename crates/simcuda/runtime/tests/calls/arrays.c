/* Arrays and boxes: what is written into them arrives, by every copy that takes one. */
#include "check.h"

typedef struct { void *address; size_t pitch, width, height; } pitched_t;
typedef struct { size_t width, height, depth; } extent_t;
typedef struct { void *array; size_t position[3]; pitched_t pitched; } side_t;
typedef struct { side_t source, target; extent_t extent; int kind; } copy_t;
typedef struct { int bits[4], kind; } channels_t;
typedef void *array_t;

channels_t cudaCreateChannelDesc(int, int, int, int, int);
int cudaMallocArray(array_t *, const channels_t *, size_t, size_t, unsigned), cudaFreeArray(array_t);
int cudaMalloc3DArray(array_t *, const channels_t *, extent_t, unsigned), cudaMalloc3D(pitched_t *, extent_t);
int cudaArrayGetInfo(channels_t *, extent_t *, unsigned *, array_t);
int cudaMemcpy3D(const copy_t *), cudaMemcpy3DAsync(const copy_t *, stream_t);
int cudaMemset3D(pitched_t, int, extent_t), cudaMemset3DAsync(pitched_t, int, extent_t, stream_t);
int cudaMemcpy2DToArray(array_t, size_t, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemcpy2DToArrayAsync(array_t, size_t, size_t, const void *, size_t, size_t, size_t, int, stream_t);
int cudaMemcpy2DFromArray(void *, size_t, array_t, size_t, size_t, size_t, size_t, int);
int cudaMemcpy2DFromArrayAsync(void *, size_t, array_t, size_t, size_t, size_t, size_t, int, stream_t);
int cudaMemcpy2DArrayToArray(array_t, size_t, size_t, array_t, size_t, size_t, size_t, size_t, int);
int cudaMemcpyToArray(array_t, size_t, size_t, const void *, size_t, int);
int cudaMemcpyFromArray(void *, array_t, size_t, size_t, size_t, int);
int cudaMemcpyToArrayAsync(array_t, size_t, size_t, const void *, size_t, int, stream_t);
int cudaMemcpyFromArrayAsync(void *, array_t, size_t, size_t, size_t, int, stream_t);
int cudaMemcpyArrayToArray(array_t, size_t, size_t, array_t, size_t, size_t, size_t, int);
int cuMemcpyHtoA_v2(array_t, size_t, const void *, size_t), cuMemcpyAtoH_v2(void *, array_t, size_t, size_t);
int cuMemcpyDtoA_v2(array_t, size_t, u64, size_t), cuMemcpyAtoD_v2(u64, array_t, size_t, size_t);
int cuMemcpyAtoA_v2(array_t, size_t, array_t, size_t, size_t);
int cuMemcpyHtoAAsync_v2(array_t, size_t, const void *, size_t, stream_t);
int cuMemcpyAtoHAsync_v2(void *, array_t, size_t, size_t, stream_t);
int cudaMemcpy3D_ptds(const copy_t *), cudaMemcpy3DAsync_ptsz(const copy_t *, stream_t);

static const channels_t byte = {{8, 0, 0, 0}, 1}, number = {{32, 0, 0, 0}, 2};

static void boxes(void) {
  pitched_t box;
  extent_t whole = {6, 3, 2}, part = {2, 2, 2};
  char host[36], back[36] = "";
  stream_t s = new_stream();
  for (int i = 0; i < 36; i++) host[i] = 'A' + i;
  OK(cudaMalloc3D(&box, whole));
  CHECK(box.pitch >= 6 && box.width == 6 && box.height == 3);
  copy_t up = {{NULL, {0, 0, 0}, {host, 6, 6, 3}}, {NULL, {0, 0, 0}, box}, whole, H2D};
  copy_t down = {{NULL, {0, 0, 0}, box}, {NULL, {0, 0, 0}, {back, 6, 6, 3}}, whole, D2H};
  OK(cudaMemcpy3D(&up));
  OK(cudaMemcpy3D(&down));
  CHECK(!memcmp(back, host, 36));
  memset(back, '.', 36);
  copy_t corner = {{NULL, {1, 1, 0}, box}, {NULL, {4, 0, 0}, {back, 6, 6, 3}}, part, DEFAULT};
  OK(cudaMemcpy3DAsync(&corner, s)); /* to pageable memory: complete on return */
  CHECK(!memcmp(back, "....HI....NO......", 18) && !memcmp(back + 18, "....Z[....`a......", 18));
  OK(cudaMemset3D(box, '-', part)); /* two rows of each layer */
  OK(cudaDeviceSynchronize());
  OK(cudaMemset3DAsync(box, '+', (extent_t){1, 3, 2}, s));
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy3D_ptds(&down)); /* the per-thread stream */
  CHECK(back[0] == '+' && back[6] == '+' && back[12] == '+' && back[18] == '+' && back[30] == '+');
  CHECK(back[1] == '-' && back[7] == '-' && back[13] == host[13] && back[19] == '-' && back[2] == host[2]);
  copy_t neither = {{NULL, {0, 0, 0}, {NULL, 6, 6, 3}}, {NULL, {0, 0, 0}, box}, whole, H2D};
  IS(cudaMemcpy3D(&neither), 1);
  up.kind = 9;
  IS(cudaMemcpy3D(&up), 21);
  up.kind = H2D;
  up.source.pitched.pitch = 5; /* less than a row */
  IS(cudaMemcpy3D(&up), 1);
}

static void arrays(void) {
  array_t a, b, c;
  stream_t s = new_stream();
  char text[] = "abcdefghijkl", back[13] = "";
  OK(cudaMallocArray(&a, &byte, 4, 3, 0));
  OK(cudaMallocArray(&b, &byte, 4, 3, 0));
  channels_t found;
  extent_t extent;
  unsigned flags;
  OK(cudaArrayGetInfo(&found, &extent, &flags, a));
  CHECK(!memcmp(&found, &byte, sizeof found) && extent.width == 4 && extent.height == 3 && extent.depth == 0 && flags == 0);
  OK(cudaMemcpy2DToArray(a, 0, 0, text, 4, 4, 3, H2D));
  OK(cudaMemcpy2DFromArray(back, 4, a, 0, 0, 4, 3, D2H));
  CHECK(!strcmp(back, text));
  OK(cudaMemcpy2DArrayToArray(b, 0, 0, a, 0, 0, 4, 3, D2D));
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpy2DToArrayAsync(b, 1, 1, "XXYY", 2, 2, 2, H2D, s));
  OK(cudaMemcpy2DFromArrayAsync(back, 4, b, 0, 0, 4, 3, D2H, s));
  CHECK(!strcmp(back, "abcdeXXhiYYl"));
  OK(cudaMemcpyToArray(a, 2, 0, "1234", 4, H2D)); /* goes on into the next row */
  OK(cudaMemcpyFromArray(back, a, 0, 0, 12, D2H));
  CHECK(!strcmp(back, "ab1234ghijkl"));
  OK(cudaMemcpyToArrayAsync(a, 0, 0, "!", 1, H2D, s));
  OK(cudaStreamSynchronize(s));
  OK(cudaMemcpyArrayToArray(b, 0, 2, a, 0, 0, 4, D2D));
  OK(cudaDeviceSynchronize());
  OK(cudaMemcpyFromArrayAsync(back, b, 0, 2, 4, D2H, s));
  CHECK(!memcmp(back, "!b12", 4));
  OK(cuMemcpyHtoA_v2(a, 4, "hello", 5));
  OK(cuMemcpyAtoA_v2(b, 0, a, 4, 5));
  char *device = on_device(8);
  OK(cuMemcpyAtoD_v2((u64)device, b, 1, 4));
  OK(cuMemcpyDtoA_v2(a, 0, (u64)device, 4));
  OK(cuMemcpyAtoH_v2(back, a, 0, 6));
  CHECK(!memcmp(back, "ellohe", 6));
  OK(cuMemcpyHtoAAsync_v2(a, 0, "zz", 2, s));
  OK(cuMemcpyAtoHAsync_v2(back, a, 0, 4, s));
  CHECK(!memcmp(back, "zzlo", 4));
  IS(cuMemcpyHtoA_v2(a, 8, "hello", 5), 1);
  IS(cudaMemcpy2DToArray(a, 2, 0, text, 4, 3, 2, H2D), 1);
  IS(cudaMemcpyToArray(a, 0, 0, text, 4, 8), 21);
  /* In 3D, positions and extents are in the array's elements. */
  float values[24], got[2] = {0, 0};
  for (int i = 0; i < 24; i++) values[i] = i;
  OK(cudaMalloc3DArray(&c, &number, (extent_t){4, 3, 2}, 0));
  copy_t up = {{NULL, {0, 0, 0}, {values, 16, 4, 3}}, {c, {0, 0, 0}, {NULL, 0, 0, 0}}, {4, 3, 2}, H2D};
  copy_t down = {{c, {2, 1, 1}, {NULL, 0, 0, 0}}, {NULL, {0, 0, 0}, {got, 8, 2, 1}}, {2, 1, 1}, D2H};
  OK(cudaMemcpy3DAsync_ptsz(&up, s));
  OK(cudaMemcpy3DAsync(&down, s));
  CHECK(got[0] == 18 && got[1] == 19);
  down.source.position[0] = 3;
  down.extent.height = 2;
  IS(cudaMemcpy3D(&down), 1);
  OK(cudaFreeArray(a));
  IS(cudaFreeArray(a), 400);
  OK(cudaFreeArray(NULL));
  IS(cudaMallocArray(&a, &(channels_t){{8, 8, 8, 0}, 1}, 4, 0, 0), 20);
}

int main(void) {
  channels_t made = cudaCreateChannelDesc(8, 0, 0, 0, 1);
  CHECK(!memcmp(&made, &byte, sizeof made));
  boxes();
  arrays();
  return 0;
}
