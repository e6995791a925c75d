/* Stream capture: what becomes nodes and edges, forks and joins, and what is refused. */
#include "graph.h"

int cudaStreamGetCaptureInfo(stream_t, int *, u64 *, graph_t *, const node_t **, const edge_t **, size_t *);
int cudaStreamUpdateCaptureDependencies(stream_t, node_t *, const edge_t *, size_t, unsigned);
int cudaStreamBeginCaptureToGraph(stream_t, graph_t, const node_t *, const edge_t *, size_t, int);
int cudaThreadExchangeStreamCaptureMode(int *), cudaStreamCreate(stream_t *);
int cudaStreamAddCallback(stream_t, void (*)(stream_t, int, void *), void *, unsigned);
int cudaEventElapsedTime(float *, event_t, event_t), cudaGraphDestroyNode(node_t);
int cuStreamBeginCapture_v2_ptsz(stream_t, int), cuStreamEndCapture_ptsz(stream_t, graph_t *);
int cuMemsetD8Async_ptsz(u64, unsigned char, size_t, stream_t);
int cuStreamGetCaptureInfo_v2(stream_t, int *, u64 *, graph_t *, const node_t **, size_t *);
int cuStreamWaitValue32_v2(stream_t, u64, unsigned, unsigned);
typedef void *module_t, *function_t;
typedef struct { unsigned id, zero; unsigned value[16]; } attribute_t;
typedef struct { unsigned grid[3], block[3], shared; stream_t stream; attribute_t *attributes; unsigned count; } config_t;
int cuModuleLoadData(module_t *, const void *), cuModuleGetFunction(function_t *, module_t, const char *);
int cuLaunchKernelEx(const config_t *, function_t, void **, void **);

static char *device, *seen;

static int status_of(stream_t s) {
  int status;
  OK(cudaStreamIsCapturing(s, &status));
  return status;
}

/* Ends a capture that an error has spoiled. */
static void is_spoiled(stream_t s) {
  graph_t graph = (graph_t)1;
  CHECK(status_of(s) == 2);
  IS(cudaMemsetAsync(device, 0, 1, s), 901);
  IS(cudaStreamEndCapture(s, &graph), 901);
  CHECK(!graph && status_of(s) == 0);
}

static void called(void *counter) { ++*(int *)counter; }
static void ignored(stream_t s, int status, void *data) { (void)s, (void)status, (void)data; }

/* Nothing runs while it is captured; each launch runs it all, with what the host memory then holds. */
static void in_one_stream(void) {
  stream_t s = new_stream();
  graph_t graph;
  char source[4] = "aaa";
  int calls = 0;
  memset(seen, 0, 8);
  OK(cudaStreamBeginCapture(s, GLOBAL));
  CHECK(status_of(s) == 1);
  OK(cudaMemcpyAsync(device, source, 4, H2D, s));
  OK(cudaMemsetAsync(device, 'b', 1, s));
  OK(cudaMemcpyAsync(seen, device, 4, D2H, s));
  OK(cudaLaunchHostFunc(s, called, &calls));
  OK(cudaStreamEndCapture(s, &graph));
  CHECK(count_nodes(graph) == 4 && count_edges(graph) == 3 && type_of(node_at(graph, 3)) == HOST);
  OK(cudaDeviceSynchronize());
  CHECK(!seen[0] && calls == 0);
  exec_t exec = instantiate(graph);
  OK(cudaGraphDestroy(graph));
  for (int i = 0; i < 3; i++) {
    source[1] = '0' + i;
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    CHECK(seen[0] == 'b' && seen[1] == '0' + i && calls == i + 1);
  }
  OK(cudaGraphExecDestroy(exec));
  IS(cudaGraphLaunch(exec, s), 1);
}

static void forks_and_joins(void) {
  stream_t s = new_stream(), other = new_stream();
  event_t fork = new_event(), join = new_event();
  graph_t graph;
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaMemsetAsync(device, 'a', 1, s));
  OK(cudaEventRecord(fork, s));
  OK(cudaStreamWaitEvent(other, fork, 0));
  CHECK(status_of(other) == 1);
  OK(cudaMemsetAsync(device + 1, 'b', 1, other));
  OK(cudaMemsetAsync(device + 2, 'c', 1, s));
  OK(cudaEventRecord(join, other));
  OK(cudaStreamWaitEvent(s, join, 0));
  OK(cudaMemcpyAsync(seen, device, 3, D2H, s));
  OK(cudaStreamEndCapture(s, &graph));
  CHECK(status_of(other) == 0);
  /* A diamond. */
  CHECK(count_nodes(graph) == 4 && count_edges(graph) == 4);
  exec_t exec = instantiate(graph);
  OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  CHECK(!memcmp(seen, "abc", 3));
  /* Outside of the capture its events are no order, and nothing to ask after. */
  IS(cudaEventQuery(fork), 907);
  OK(cudaStreamWaitEvent(other, fork, 0));
  OK(cudaEventRecord(fork, s));
  OK(cudaEventSynchronize(fork));
  /* A fork that is not joined. */
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaEventRecord(fork, s));
  OK(cudaStreamWaitEvent(other, fork, 0));
  OK(cudaMemsetAsync(device, 'a', 1, other));
  IS(cudaStreamEndCapture(s, &graph), 904);
  CHECK(!graph && status_of(s) == 0 && status_of(other) == 0);
  /* Ended in the wrong stream. */
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaEventRecord(fork, s));
  OK(cudaStreamWaitEvent(other, fork, 0));
  IS(cudaStreamEndCapture(other, &graph), 903);
  is_spoiled(s);
}

static void refusals(void) {
  stream_t s = new_stream(), other = new_stream(), blocking;
  event_t before = new_event(), inside = new_event();
  graph_t graph;
  float time;
  void *p;
  OK(cudaStreamCreate(&blocking));
  OK(cudaEventRecord(before, other));
  IS(cudaStreamBeginCapture(NULL, GLOBAL), 900);
  IS(cudaStreamBeginCapture(s, 3), 1);
  IS(cudaStreamEndCapture(s, &graph), 401);
  IS(cudaEventRecordWithFlags(before, s, 1), 1);
  OK(cudaStreamBeginCapture(s, GLOBAL));
  IS(cudaStreamBeginCapture(s, GLOBAL), 401);
  OK(cudaStreamEndCapture(s, &graph));
  CHECK(count_nodes(graph) == 0);
#define SPOILS(call, code)             \
  OK(cudaStreamBeginCapture(s, GLOBAL)); \
  IS(call, code);                      \
  is_spoiled(s)
  SPOILS(cudaStreamSynchronize(s), 900);
  SPOILS(cudaStreamQuery(s), 900);
  SPOILS(cudaStreamQuery(other), 900);
  SPOILS(cudaDeviceSynchronize(), 900);
  SPOILS(cudaEventQuery(before), 900);
  SPOILS(cudaMalloc(&p, 8), 900);
  SPOILS(cudaMallocHost(&p, 8), 900);
  SPOILS(cudaFree(device), 900);
  SPOILS(cudaStreamWaitEvent(s, before, 0), 905);
  SPOILS(cudaMemcpy(seen, device, 1, D2H), 900);
  SPOILS(cudaStreamAddCallback(s, ignored, NULL, 0), 900);
  SPOILS(cudaFreeAsync(device, s), 1);
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaEventRecord(inside, s));
  IS(cudaEventElapsedTime(&time, inside, inside), 907);
  CHECK(status_of(s) == 1);
  IS(cudaEventSynchronize(inside), 907);
  is_spoiled(s);
  /* Two captures do not merge. */
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaStreamBeginCapture(other, GLOBAL));
  OK(cudaEventRecord(inside, s));
  IS(cudaStreamWaitEvent(other, inside, 0), 902);
  is_spoiled(s);
  is_spoiled(other);
  /* Nor does one go on with another that is spoiled already. */
  OK(cudaStreamBeginCapture(s, THREAD_LOCAL));
  OK(cudaEventRecord(inside, s));
  IS(cudaStreamQuery(s), 900);
  OK(cudaStreamBeginCapture(other, THREAD_LOCAL));
  IS(cudaStreamWaitEvent(other, inside, 0), 901);
  is_spoiled(s);
  is_spoiled(other);
  /* The legacy stream may be used as long as no blocking stream is captured. */
  OK(cudaStreamBeginCapture(s, RELAXED));
  OK(cudaMemsetAsync(device, 'l', 1, NULL));
  OK(cudaMemcpy(seen, device, 1, D2H));
  CHECK(seen[0] == 'l');
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaStreamBeginCapture(blocking, RELAXED));
  int status;
  IS(cudaStreamIsCapturing(NULL, &status), 906);
  CHECK(status_of(blocking) == 1);
  IS(cudaMemsetAsync(device, 'l', 1, NULL), 906);
  is_spoiled(blocking);
  /* A destroyed stream takes its capture with it. */
  OK(cudaStreamBeginCapture(blocking, GLOBAL));
  OK(cudaStreamDestroy(blocking));
  OK(cudaMalloc(&p, 8));
}

static stream_t shared;
static void *allocates(void *want) {
  void *p;
  IS(cudaMalloc(&p, 8), *(int *)want);
  return NULL;
}
static void *ends(void *want) {
  graph_t graph;
  IS(cudaStreamEndCapture(shared, &graph), *(int *)want);
  return NULL;
}
static void *lenient(void *want) {
  int mode = THREAD_LOCAL;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == GLOBAL);
  return allocates(want);
}
static void in_a_thread(void *(*run)(void *), int want) {
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, run, &want));
  CHECK(!pthread_join(thread, NULL));
}

/* The mode says whom a capture restricts, and who may end it. */
static void modes(void) {
  graph_t graph;
  void *p;
  shared = new_stream();
  OK(cudaStreamBeginCapture(shared, GLOBAL));
  in_a_thread(lenient, 0);
  in_a_thread(ends, 908);
  CHECK(status_of(shared) == 1);
  in_a_thread(allocates, 900);
  is_spoiled(shared);
  OK(cudaStreamBeginCapture(shared, THREAD_LOCAL));
  in_a_thread(allocates, 0);
  in_a_thread(ends, 908);
  IS(cudaMalloc(&p, 8), 900);
  is_spoiled(shared);
  OK(cudaStreamBeginCapture(shared, RELAXED));
  OK(cudaMalloc(&p, 8));
  in_a_thread(allocates, 0);
  in_a_thread(ends, 0);
  OK(cudaStreamBeginCapture(shared, GLOBAL));
  int mode = RELAXED;
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  OK(cudaMalloc(&p, 8));
  IS(cudaStreamSynchronize(shared), 900);
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == RELAXED);
  IS(cudaStreamEndCapture(shared, &graph), 901);
  mode = 3;
  IS(cudaThreadExchangeStreamCaptureMode(&mode), 1);
}

static void what_is_known_of_one(void) {
  stream_t s = new_stream();
  graph_t graph, same;
  const node_t *nodes;
  const edge_t *edges;
  size_t count;
  u64 id, again;
  int status;
  OK(cudaStreamGetCaptureInfo(s, &status, NULL, NULL, NULL, NULL, NULL));
  CHECK(status == 0);
  IS(cudaStreamUpdateCaptureDependencies(s, NULL, NULL, 0, 0), 401);
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaStreamGetCaptureInfo(s, &status, &id, &graph, &nodes, &edges, &count));
  CHECK(status == 1 && count == 0 && count_nodes(graph) == 0);
  OK(cudaMemsetAsync(device, 'a', 1, s));
  /* A node of the program's own, which the stream then comes after as well. */
  node_t added = add_fill(graph, NULL, device + 1, 'b', 1);
  OK(cudaStreamUpdateCaptureDependencies(s, &added, NULL, 1, 0));
  OK(cuStreamGetCaptureInfo_v2(s, &status, &again, &same, &nodes, &count));
  CHECK(count == 2 && nodes[1] == added && again == id && same == graph);
  OK(cudaMemsetAsync(device + 2, 'c', 1, s));
  IS(cudaGraphDestroy(graph), 1);
  IS(cudaGraphDestroyNode(added), 1);
  OK(cudaStreamUpdateCaptureDependencies(s, NULL, NULL, 0, 1));
  OK(cudaMemsetAsync(device + 3, 'd', 1, s));
  OK(cudaStreamEndCapture(s, &same));
  size_t roots;
  OK(cudaGraphGetRootNodes(graph, NULL, &roots));
  CHECK(same == graph && count_nodes(graph) == 4 && count_edges(graph) == 2 && roots == 3);
  /* Into a graph that is there already, after one of its nodes. */
  OK(cudaStreamBeginCaptureToGraph(s, graph, &added, NULL, 1, GLOBAL));
  OK(cudaStreamGetCaptureInfo(s, &status, &again, NULL, NULL, NULL, NULL));
  CHECK(again != id);
  OK(cudaMemsetAsync(device + 4, 'e', 1, s));
  exec_t exec;
  IS(cudaGraphInstantiate(&exec, graph, 0), 1);
  OK(cudaStreamEndCapture(s, NULL));
  CHECK(count_nodes(graph) == 5 && count_edges(graph) == 3);
  exec = instantiate(graph);
  OK(cudaGraphLaunch(exec, s));
  OK(cudaMemcpyAsync(seen, device, 5, D2H, s));
  OK(cudaStreamSynchronize(s));
  CHECK(!memcmp(seen, "abcde", 5));
}

/* Events that matter outside: each launch records one, and waits for what the other's newest record covers then. */
static void external_events(void) {
  stream_t s = new_stream(), other = new_stream(), gate = new_stream();
  event_t waited = new_event(), recorded = new_event();
  volatile unsigned *flag = pinned(4);
  graph_t graph;
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaStreamWaitEvent(s, waited, 1));
  OK(cudaMemcpyAsync(seen, device, 1, D2H, s));
  OK(cudaEventRecordWithFlags(recorded, s, 1));
  OK(cuStreamWaitValue32_v2(s, (u64)flag, 1, 1));
  OK(cudaStreamEndCapture(s, &graph));
  CHECK(count_nodes(graph) == 4 && type_of(node_at(graph, 0)) == WAIT_EVENT && type_of(node_at(graph, 2)) == RECORD_EVENT);
  CHECK(type_of(node_at(graph, 3)) == VALUES);
  exec_t exec = instantiate(graph);
  OK(cudaMemsetAsync(device, 'w', 1, gate));
  OK(cudaEventRecord(waited, gate));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamWaitEvent(other, recorded, 0));
  /* The event comes, the launch itself does not end. */
  OK(cudaStreamSynchronize(other));
  CHECK(seen[0] == 'w');
  IS(cudaStreamQuery(s), 600);
  *flag = 1;
  OK(cudaStreamSynchronize(s));
  OK(cudaEventQuery(recorded));
}

/* A launch that is captured is a child graph. The calling thread's own stream may be captured, through either door. */
static void launches_within(void) {
  stream_t s = new_stream(), mine = (stream_t)2;
  graph_t inner, outer;
  OK(cuStreamBeginCapture_v2_ptsz(NULL, GLOBAL));
  OK(cuMemsetD8Async_ptsz((u64)device, 'p', 1, NULL));
  CHECK(status_of(mine) == 1);
  OK(cuStreamEndCapture_ptsz(NULL, &inner));
  exec_t exec = instantiate(inner);
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaMemcpyAsync(seen, device, 1, D2H, s));
  OK(cudaStreamEndCapture(s, &outer));
  CHECK(type_of(node_at(outer, 0)) == CHILD);
  exec_t both = instantiate(outer);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphLaunch(both, s));
  OK(cudaStreamSynchronize(s));
  CHECK(seen[0] == 'p');
}

static void *captures_alone(void *letter) {
  stream_t s = new_stream();
  char *own = pinned(2), *there = on_device(1);
  for (int i = 0; i < 20; i++) {
    graph_t graph;
    OK(cudaStreamBeginCapture(s, THREAD_LOCAL));
    OK(cudaMemsetAsync(there, *(char *)letter, 1, s));
    OK(cudaMemcpyAsync(own, there, 1, D2H, s));
    OK(cudaStreamEndCapture(s, &graph));
    exec_t exec = instantiate(graph);
    own[0] = 0;
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    CHECK(own[0] == *(char *)letter);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
  }
  return NULL;
}

static void on_several_threads(void) {
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) CHECK(!pthread_create(&threads[i], NULL, captures_alone, &"abc"[i]));
  for (int i = 0; i < 3; i++) CHECK(!pthread_join(threads[i], NULL));
}

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry none()\n{\n ret;\n}\n";

/* A launch that may begin early has an edge that says so. */
static void programmatic_launches(void) {
  stream_t s = new_stream();
  graph_t graph;
  module_t module;
  function_t function;
  attribute_t early = {6, 0, {1}};
  config_t config = {{1, 1, 1}, {1, 1, 1}, 0, s, &early, 1};
  node_t from[4], to[4];
  edge_t edges[4];
  size_t count = 4;
  OK(cuModuleLoadData(&module, ptx));
  OK(cuModuleGetFunction(&function, module, "none"));
  OK(cudaStreamBeginCapture(s, GLOBAL));
  for (int i = 0; i < 2; i++) OK(cuLaunchKernelEx(&config, function, NULL, NULL));
  config.count = 0;
  OK(cuLaunchKernelEx(&config, function, NULL, NULL));
  OK(cudaStreamEndCapture(s, &graph));
  OK(cudaGraphGetEdges(graph, from, to, edges, &count));
  CHECK(count == 2 && edges[0].from == 1 && edges[0].type == 1 && edges[1].from == 0 && edges[1].type == 0);
  OK(cudaGraphLaunch(instantiate(graph), s));
  OK(cudaStreamSynchronize(s));
}

int main(void) {
  device = on_device(64);
  seen = pinned(64);
  in_one_stream();
  forks_and_joins();
  refusals();
  modes();
  what_is_known_of_one();
  external_events();
  launches_within();
  on_several_threads();
  programmatic_launches();
  return 0;
}
