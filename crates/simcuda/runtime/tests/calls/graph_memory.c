/* What graphs allocate: addresses, who may free them and when, and what is kept. */
#include "graph.h"

typedef struct { int type, zero[3]; long long body[29], zero_too; } any_t;
int cudaDeviceGraphMemTrim(int), cudaDeviceGetGraphMemAttribute(int, int, u64 *), cudaDeviceSetGraphMemAttribute(int, int, u64 *);
int cudaGraphMemAllocNodeGetParams(node_t, alloc_t *), cudaGraphMemFreeNodeGetParams(node_t, void **);
int cudaGraphDestroyNode(node_t), cudaGraphClone(graph_t *, graph_t), cudaMemGetInfo(size_t *, size_t *);
int cudaGraphAddNode(node_t *, graph_t, const node_t *, const edge_t *, size_t, any_t *);
int cudaGraphRemoveDependencies(graph_t, const node_t *, const node_t *, const edge_t *, size_t);
enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };

static stream_t s;
static char *seen;

static graph_t new_graph(void) {
  graph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  return graph;
}

static u64 attribute(int which) {
  u64 value;
  OK(cudaDeviceGetGraphMemAttribute(0, which, &value));
  return value;
}

static node_t add_alloc(graph_t graph, node_t after, size_t size, char **address) {
  alloc_t params = {1, 0, {1, 0}, NULL, 0, {0}, NULL, 0, size, NULL};
  node_t node;
  OK(cudaGraphAddMemAllocNode(&node, graph, &after, after != NULL, &params));
  *address = params.address;
  return node;
}

static node_t add_free(graph_t graph, node_t after, char *address) {
  node_t node;
  OK(cudaGraphAddMemFreeNode(&node, graph, &after, 1, address));
  return node;
}

/* Allocated and freed in one graph: nobody else may free it; what is freed may be allocated again behind it. */
static void within_one(void) {
  graph_t graph = new_graph(), clone;
  char *a, *b, *c;
  alloc_t found;
  void *freed;
  node_t node = add_alloc(graph, NULL, 1000, &a), alloc = node;
  OK(cudaGraphMemAllocNodeGetParams(node, &found));
  CHECK(found.address == a && found.size == 1000 && found.location.id == 0);
  node_t filled = add_fill(graph, node, a, 'a', 1000);
  node = add_copy(graph, filled, seen, a, 1);
  node = add_free(graph, node, a);
  OK(cudaGraphMemFreeNodeGetParams(node, &freed));
  CHECK(freed == a);
  IS(cudaGraphAddMemFreeNode(&node, graph, &node, 1, a), 1);
  node_t unordered = add_alloc(graph, NULL, 1000, &b), again = add_alloc(graph, node, 1000, &c);
  CHECK(b != a && c == a);
  again = add_copy(graph, add_fill(graph, again, c, 'c', 1), seen + 1, c, 1);
  add_free(graph, again, c);
  add_free(graph, unordered, b);
  CHECK(attribute(USED) == 0);
  exec_t exec = instantiate(graph), second;
  IS(cudaGraphInstantiate(&second, graph, 0), 1);
  for (int i = 0; i < 3; i++) {
    memset(seen, 0, 2);
    OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    CHECK(!memcmp(seen, "ac", 2));
  }
  CHECK(attribute(USED) == 2048 && attribute(RESERVED) == 2048);
  IS(cudaFreeAsync(a, s), 1);
  IS(cudaFree(a), 1);
  IS(cudaGraphClone(&clone, graph), 1);
  IS(cudaGraphDestroyNode(alloc), 1);
  IS(cudaGraphRemoveDependencies(graph, &alloc, &filled, NULL, 1), 1);
  IS(cudaGraphAddMemFreeNode(&node, new_graph(), NULL, 0, a), 1);
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaDeviceSynchronize());
  CHECK(attribute(USED) == 0 && attribute(RESERVED) == 2048 && attribute(USED_HIGH) == 2048);
  OK(cudaDeviceGraphMemTrim(0));
  CHECK(attribute(RESERVED) == 0 && attribute(RESERVED_HIGH) == 2048);
  u64 zero = 0, one = 1;
  OK(cudaDeviceSetGraphMemAttribute(0, RESERVED_HIGH, &zero));
  CHECK(attribute(RESERVED_HIGH) == 0);
  IS(cudaDeviceSetGraphMemAttribute(0, USED_HIGH, &one), 1);
  IS(cudaDeviceSetGraphMemAttribute(0, USED, &zero), 1);
  IS(cudaDeviceGraphMemTrim(7), 101);
}

/* Not freed in its graph: there after the launch, until somebody frees it; and no second launch before that. */
static void beyond_it(void) {
  graph_t graph, freeing = new_graph();
  char *p, *q;
  node_t node;
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaMallocAsync((void **)&p, 64, s));
  OK(cudaMemsetAsync(p, 'p', 64, s));
  OK(cudaStreamEndCapture(s, &graph));
  CHECK(type_of(node_at(graph, 0)) == ALLOC);
  IS(cudaFreeAsync(p, s), 1); /* not allocated yet */
  exec_t exec = instantiate(graph);
  for (int i = 0; i < 2; i++) {
    seen[0] = 0;
    OK(cudaGraphLaunch(exec, s));
    IS(cudaGraphLaunch(exec, s), 1);
    OK(cudaMemcpyAsync(seen, p, 1, D2H, s));
    OK(cudaFreeAsync(p, s));
    IS(cudaFreeAsync(p, s), 1);
    OK(cudaStreamSynchronize(s));
    CHECK(seen[0] == 'p');
  }
  OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  OK(cudaFree(p));
  /* Another graph frees it, once for each launch; then its own may not. */
  OK(cudaGraphAddMemFreeNode(&node, freeing, NULL, 0, p));
  IS(cudaGraphAddMemFreeNode(&node, graph, NULL, 0, p), 1);
  exec_t frees = instantiate(freeing);
  IS(cudaGraphLaunch(frees, s), 1);
  OK(cudaGraphLaunch(exec, s));
  OK(cudaGraphLaunch(frees, s));
  IS(cudaGraphLaunch(frees, s), 1);
  OK(cudaGraphLaunch(exec, s));
  /* It outlives graph and executable. */
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaMemcpyAsync(seen, p, 1, D2H, s));
  OK(cudaStreamSynchronize(s));
  CHECK(attribute(USED) == 512);
  OK(cudaFreeAsync(p, s));
  OK(cudaStreamSynchronize(s));
  CHECK(attribute(USED) == 0);
  IS(cudaFreeAsync(p, s), 1);
  /* Freed by each launch. */
  graph = new_graph();
  node = add_alloc(graph, NULL, 64, &q);
  add_fill(graph, node, q, 'q', 1);
  OK(cudaGraphInstantiate(&exec, graph, 1));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaFreeAsync(q, s));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaStreamSynchronize(s));
  OK(cudaDeviceGraphMemTrim(0));
  CHECK(attribute(RESERVED) == 0);
}

/* A graph that allocates is no child, unless it is moved. */
static void moved(void) {
  graph_t graph = new_graph(), child = new_graph();
  char *p;
  node_t node;
  exec_t exec;
  node = add_alloc(child, NULL, 64, &p);
  add_free(child, add_copy(child, add_fill(child, node, p, 'm', 1), seen, p, 1), p);
  IS(cudaGraphAddChildGraphNode(&node, graph, NULL, 0, child), 1);
  any_t params = {CHILD, {0}, {0}, 0};
  params.body[0] = (long long)child;
  params.body[1] = 1;
  OK(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &params));
  IS(cudaGraphDestroy(child), 1);
  IS(cudaGraphInstantiate(&exec, child, 0), 1);
  exec = instantiate(graph);
  OK(cudaGraphLaunch(exec, s));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  CHECK(seen[0] == 'm');
  /* In a capture that ends in an error nothing is left. */
  u64 before = attribute(RESERVED);
  size_t free_before, free_after, total;
  OK(cudaMemGetInfo(&free_before, &total));
  OK(cudaStreamBeginCapture(s, GLOBAL));
  OK(cudaMallocAsync((void **)&p, 4096, s));
  IS(cudaStreamSynchronize(s), 900);
  IS(cudaStreamEndCapture(s, &graph), 901);
  OK(cudaMemGetInfo(&free_after, &total));
  CHECK(attribute(RESERVED) == before && free_after == free_before);
}

int main(void) {
  s = new_stream();
  seen = pinned(64);
  within_one();
  beyond_it();
  moved();
  return 0;
}
