/* Graph calls that more than one of the programs makes. */
#include "check.h"

typedef void *graph_t, *node_t, *exec_t;
typedef struct { unsigned char from, to, type, zero[5]; } edge_t;
typedef struct { void *dst; size_t pitch; unsigned value, element; size_t width, height; } memset_t;
typedef struct { void (*fn)(void *); void *data; } host_t;
typedef struct { void *func; unsigned grid[3], block[3], shared; void **params, **extra; } kernel_t;
typedef struct {
  int kind, handles;
  location_t location;
  void *security;
  size_t max;
  char rest[56];
  void *access;
  size_t access_count, size;
  void *address;
} alloc_t;
enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { KERNEL, MEMCPY, MEMSET, HOST, CHILD, EMPTY, WAIT_EVENT, RECORD_EVENT, ALLOC = 10, FREE, VALUES, CONDITIONAL };

int cudaStreamBeginCapture(stream_t, int), cudaStreamEndCapture(stream_t, graph_t *), cudaStreamIsCapturing(stream_t, int *);
int cudaGraphCreate(graph_t *, unsigned), cudaGraphDestroy(graph_t), cudaGraphGetNodes(graph_t, node_t *, size_t *);
int cudaGraphGetEdges(graph_t, node_t *, node_t *, edge_t *, size_t *), cudaGraphNodeGetType(node_t, int *);
int cudaGraphGetRootNodes(graph_t, node_t *, size_t *);
int cudaGraphInstantiate(exec_t *, graph_t, u64), cudaGraphExecDestroy(exec_t), cudaGraphLaunch(exec_t, stream_t);
int cudaGraphAddMemcpyNode1D(node_t *, graph_t, const node_t *, size_t, void *, const void *, size_t, int);
int cudaGraphAddMemsetNode(node_t *, graph_t, const node_t *, size_t, const memset_t *);
int cudaGraphAddHostNode(node_t *, graph_t, const node_t *, size_t, const host_t *);
int cudaGraphAddKernelNode(node_t *, graph_t, const node_t *, size_t, const kernel_t *);
int cudaGraphAddEmptyNode(node_t *, graph_t, const node_t *, size_t);
int cudaGraphAddChildGraphNode(node_t *, graph_t, const node_t *, size_t, graph_t);
int cudaGraphAddMemAllocNode(node_t *, graph_t, const node_t *, size_t, alloc_t *);
int cudaGraphAddMemFreeNode(node_t *, graph_t, const node_t *, size_t, void *);
int cudaMallocAsync(void **, size_t, stream_t), cudaFreeAsync(void *, stream_t);
int cudaEventRecordWithFlags(event_t, stream_t, unsigned);

static inline size_t count_nodes(graph_t graph) {
  size_t count;
  OK(cudaGraphGetNodes(graph, NULL, &count));
  return count;
}

static inline size_t count_edges(graph_t graph) {
  size_t count;
  OK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &count));
  return count;
}

static inline int type_of(node_t node) {
  int type;
  OK(cudaGraphNodeGetType(node, &type));
  return type;
}

static inline node_t node_at(graph_t graph, size_t index) {
  node_t nodes[64];
  size_t count = 64;
  OK(cudaGraphGetNodes(graph, nodes, &count));
  CHECK(index < count);
  return nodes[index];
}

static inline exec_t instantiate(graph_t graph) {
  exec_t exec;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  return exec;
}

static inline node_t add_fill(graph_t graph, node_t after, void *target, unsigned value, size_t bytes) {
  node_t node;
  memset_t params = {target, 0, value, 1, bytes, 1};
  OK(cudaGraphAddMemsetNode(&node, graph, &after, after != NULL, &params));
  return node;
}

static inline node_t add_copy(graph_t graph, node_t after, void *target, const void *source, size_t bytes) {
  node_t node;
  OK(cudaGraphAddMemcpyNode1D(&node, graph, &after, after != NULL, target, source, bytes, DEFAULT));
  return node;
}
