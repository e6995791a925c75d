/* Graphs built by hand: nodes of each type, their parameters, edges, clones, and what makes no graph. */
#include "graph.h"

typedef struct { void *array; size_t position[3]; struct { void *p; size_t pitch, width, height; } pitched; } side_t;
typedef struct { side_t source, target; size_t extent[3]; int kind; } copy_t;
typedef struct { int type, zero[3]; long long body[29], zero_too; } any_t;
typedef void *module_t, *function_t;

int cudaGraphAddMemcpyNode(node_t *, graph_t, const node_t *, size_t, const copy_t *);
int cudaGraphMemcpyNodeGetParams(node_t, copy_t *), cudaGraphMemcpyNodeSetParams(node_t, const copy_t *);
int cudaGraphMemcpyNodeSetParams1D(node_t, void *, const void *, size_t, int);
int cudaGraphMemsetNodeGetParams(node_t, memset_t *), cudaGraphMemsetNodeSetParams(node_t, const memset_t *);
int cudaGraphHostNodeGetParams(node_t, host_t *), cudaGraphHostNodeSetParams(node_t, const host_t *);
int cudaGraphKernelNodeGetParams(node_t, kernel_t *), cudaGraphKernelNodeSetParams(node_t, const kernel_t *);
int cudaGraphKernelNodeSetAttribute(node_t, int, const void *), cudaGraphKernelNodeGetAttribute(node_t, int, void *);
int cudaGraphKernelNodeCopyAttributes(node_t, node_t);
int cudaGraphChildGraphNodeGetGraph(node_t, graph_t *);
int cudaGraphAddEventRecordNode(node_t *, graph_t, const node_t *, size_t, event_t);
int cudaGraphAddEventWaitNode(node_t *, graph_t, const node_t *, size_t, event_t);
int cudaGraphEventRecordNodeGetEvent(node_t, event_t *), cudaGraphEventRecordNodeSetEvent(node_t, event_t);
int cudaGraphEventWaitNodeGetEvent(node_t, event_t *), cudaGraphEventWaitNodeSetEvent(node_t, event_t);
int cudaGraphAddDependencies(graph_t, const node_t *, const node_t *, const edge_t *, size_t);
int cudaGraphRemoveDependencies(graph_t, const node_t *, const node_t *, const edge_t *, size_t);
int cudaGraphNodeGetDependencies(node_t, node_t *, edge_t *, size_t *);
int cudaGraphNodeGetDependentNodes(node_t, node_t *, edge_t *, size_t *);
int cudaGraphDestroyNode(node_t), cudaGraphClone(graph_t *, graph_t), cudaGraphNodeFindInClone(node_t *, node_t, graph_t);
int cudaGraphDebugDotPrint(graph_t, const char *, unsigned);
int cudaGraphAddNode(node_t *, graph_t, const node_t *, const edge_t *, size_t, any_t *);
int cudaGraphNodeSetParams(node_t, any_t *), cudaGraphNodeGetParams(node_t, any_t *);
int cudaGraphConditionalHandleCreate(u64 *, graph_t, unsigned, unsigned);
int cudaGraphAddExternalSemaphoresSignalNode(node_t *, graph_t, const node_t *, size_t, const void *);
int cudaGraphAddExternalSemaphoresWaitNode(node_t *, graph_t, const node_t *, size_t, const void *);
int cudaImportExternalSemaphore(void **, const void *), cudaStreamBeginCaptureToGraph(stream_t, graph_t, const node_t *, const edge_t *, size_t, int);
int cuModuleLoadData(module_t *, const void *), cuModuleGetFunction(function_t *, module_t, const char *);
int cuGraphAddKernelNode(node_t *, graph_t, const node_t *, size_t, const kernel_t *);
int cuGraphKernelNodeGetParams(node_t, kernel_t *), cuGraphAddBatchMemOpNode(node_t *, graph_t, const node_t *, size_t, const void *);
int cuGraphNodeGetDependencies(node_t, node_t *, size_t *);
void cuSimcudaGraphSetConditional(u64, unsigned);

static const char ptx[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                          ".visible .entry add(\n.param .u64 p,\n.param .u32 value\n)\n{\n ret;\n}\n"
                          ".visible .entry countdown(\n.param .u64 handle,\n.param .u64 left\n)\n{\n ret;\n}\n";
void simcuda_kernel_add(void **params, const unsigned *grid, const unsigned *block, unsigned shared) {
  (void)block, (void)shared;
  **(int **)params[0] += *(int *)params[1] * (int)grid[0];
}
void simcuda_kernel_countdown(void **params, const unsigned *grid, const unsigned *block, unsigned shared) {
  (void)grid, (void)block, (void)shared;
  cuSimcudaGraphSetConditional(*(u64 *)params[0], --**(int **)params[1]);
}

static stream_t s;
static char *device, *seen;

static graph_t new_graph(void) {
  graph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  return graph;
}

static void run(graph_t graph) {
  exec_t exec = instantiate(graph);
  OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  OK(cudaGraphExecDestroy(exec));
}

static void called(void *counter) { ++*(int *)counter; }

static void each_type(void) {
  graph_t graph = new_graph(), inner = new_graph(), found;
  node_t node, first, last;
  memset_t fill;
  host_t host;
  int calls = 0, others = 0;
  first = add_fill(graph, NULL, device, 'a', 8);
  OK(cudaGraphMemsetNodeGetParams(first, &fill));
  CHECK(fill.dst == device && fill.value == 'a' && fill.width == 8 && fill.height == 1 && fill.element == 1);
  fill.value = 'A';
  OK(cudaGraphMemsetNodeSetParams(first, &fill));
  fill.element = 3;
  IS(cudaGraphMemsetNodeSetParams(first, &fill), 1);
  /* The third byte of each of two rows. */
  OK(cudaGraphAddMemsetNode(&node, graph, &first, 1, &(memset_t){device + 2, 4, 'b', 1, 1, 2}));
  OK(cudaGraphAddHostNode(&last, graph, &node, 1, &(host_t){called, &calls}));
  OK(cudaGraphHostNodeGetParams(last, &host));
  CHECK(host.fn == called && host.data == &calls);
  host.data = &others;
  OK(cudaGraphHostNodeSetParams(last, &host));
  IS(cudaGraphHostNodeSetParams(node, &host), 1);
  IS(cudaGraphHostNodeGetParams(node, &host), 1);
  OK(cudaGraphAddEmptyNode(&last, graph, &last, 1));
  add_copy(inner, NULL, seen, device, 8);
  OK(cudaGraphAddChildGraphNode(&last, graph, &last, 1, inner));
  OK(cudaGraphDestroy(inner));
  OK(cudaGraphChildGraphNodeGetGraph(last, &found));
  CHECK(count_nodes(found) == 1 && found != inner + 1 && type_of(last) == CHILD);
  IS(cudaGraphDestroy(found), 1);
  run(graph);
  CHECK(!memcmp(seen, "AAbAAAbA", 8) && calls == 0 && others == 1);
  OK(cudaGraphDestroy(graph));
  IS(cudaGraphDestroy(graph), 1);
  IS(cudaGraphNodeGetType(last, &calls), 1);
}

static void copies(void) {
  graph_t graph = new_graph();
  node_t node;
  copy_t copy = {{NULL, {0, 0, 0}, {device, 4, 4, 2}}, {NULL, {0, 0, 0}, {seen, 8, 8, 2}}, {2, 2, 1}, DEFAULT}, found;
  add_fill(graph, NULL, device, 'x', 8);
  memset(seen, '.', 16);
  OK(cudaGraphAddMemcpyNode(&node, graph, NULL, 0, &copy));
  OK(cudaGraphMemcpyNodeGetParams(node, &found));
  CHECK(found.source.pitched.p == device && found.target.pitched.pitch == 8 && found.extent[0] == 2 && found.extent[1] == 2);
  node_t from = node_at(graph, 0);
  OK(cudaGraphAddDependencies(graph, &from, &node, NULL, 1));
  run(graph);
  CHECK(!memcmp(seen, "xx......xx......", 16));
  OK(cudaGraphMemcpyNodeSetParams1D(node, seen, device, 3, D2H));
  OK(cudaGraphMemcpyNodeGetParams(node, &found));
  CHECK(found.extent[0] == 3 && found.extent[1] == 1);
  run(graph);
  CHECK(seen[2] == 'x' && seen[3] == '.');
  IS(cudaGraphMemcpyNodeSetParams1D(node, seen, device, 3, 9), 21);
  IS(cudaGraphAddMemcpyNode1D(&node, graph, NULL, 0, seen, device, 1 << 20, D2H), 1);
}

static void kernels(void) {
  graph_t graph = new_graph();
  module_t module;
  function_t function;
  int *sum = on_device(4), value = 3;
  void *params[] = {&sum, &value};
  OK(cuModuleLoadData(&module, ptx));
  OK(cuModuleGetFunction(&function, module, "add"));
  kernel_t kernel = {function, {2, 1, 1}, {1, 1, 1}, 0, params, NULL}, found;
  node_t first = add_fill(graph, NULL, sum, 0, 4), one, two;
  OK(cuGraphAddKernelNode(&one, graph, &first, 1, &kernel));
  value = 100; /* the node has a copy */
  OK(cuGraphKernelNodeGetParams(one, &found));
  CHECK(found.func == function && found.grid[0] == 2 && *(int **)found.params[0] == sum && *(int *)found.params[1] == 3);
  OK(cudaGraphAddKernelNode(&two, graph, &one, 1, &found)); /* the runtime takes a kernel's handle too */
  OK(cudaGraphKernelNodeGetParams(two, &found));
  found.params = params;
  OK(cudaGraphKernelNodeSetParams(two, &found));
  run(graph);
  CHECK(*sum == 206);
  int wanted[16] = {7}, found_value[16];
  OK(cudaGraphKernelNodeSetAttribute(one, 8, wanted));
  OK(cudaGraphKernelNodeCopyAttributes(two, one));
  OK(cudaGraphKernelNodeGetAttribute(two, 8, found_value));
  CHECK(found_value[0] == 7);
  IS(cudaGraphKernelNodeGetAttribute(first, 8, found_value), 1);
  kernel.block[0] = 5000;
  IS(cuGraphAddKernelNode(&two, graph, NULL, 0, &kernel), 1);
  /* A port of the kernel's: told to those who can hear it only. */
  edge_t programmatic = {1, 0, 1, {0}}, odd = {1, 1, 0, {0}}, edges[4];
  node_t third, from[4], to[4];
  size_t count = 4;
  OK(cudaGraphAddEmptyNode(&third, graph, NULL, 0));
  IS(cudaGraphAddDependencies(graph, &two, &third, &odd, 1), 1);
  IS(cudaGraphAddDependencies(graph, &first, &third, &programmatic, 1), 1);
  OK(cudaGraphAddDependencies(graph, &two, &third, &programmatic, 1));
  OK(cudaGraphGetEdges(graph, from, to, edges, &count));
  CHECK(count == 3 && from[2] == two && to[2] == third && edges[2].from == 1 && edges[0].from == 0);
  IS(cudaGraphGetEdges(graph, from, to, NULL, &count), 402);
  IS(cuGraphNodeGetDependencies(third, from, &count), 402);
}

static void edges(void) {
  graph_t graph = new_graph(), other = new_graph(), clone;
  node_t a, b, c, nodes[4] = {0}, stranger;
  size_t count = 4;
  OK(cudaGraphAddEmptyNode(&a, graph, NULL, 0));
  OK(cudaGraphAddEmptyNode(&b, graph, &a, 1));
  OK(cudaGraphAddEmptyNode(&c, graph, (node_t[]){a, b}, 2));
  OK(cudaGraphAddEmptyNode(&stranger, other, NULL, 0));
  IS(cudaGraphAddEmptyNode(&stranger, graph, (node_t[]){a, a}, 2), 1);
  IS(cudaGraphAddDependencies(graph, &a, &b, NULL, 1), 1);
  IS(cudaGraphAddDependencies(graph, &a, &stranger, NULL, 1), 1);
  OK(cudaGraphNodeGetDependencies(c, nodes, NULL, &count));
  CHECK(count == 2 && nodes[0] == a && nodes[1] == b);
  count = 1;
  OK(cudaGraphNodeGetDependentNodes(a, nodes, NULL, &count));
  CHECK(count == 1 && nodes[0] == b);
  OK(cudaGraphNodeGetDependentNodes(a, NULL, NULL, &count));
  CHECK(count == 2);
  OK(cudaGraphClone(&clone, graph));
  OK(cudaGraphNodeFindInClone(&nodes[0], c, clone));
  CHECK(nodes[0] != c && count_edges(clone) == 3);
  IS(cudaGraphNodeFindInClone(&nodes[0], stranger, clone), 1);
  OK(cudaGraphRemoveDependencies(graph, &a, &c, NULL, 1));
  IS(cudaGraphRemoveDependencies(graph, &a, &c, NULL, 1), 1);
  OK(cudaGraphDestroyNode(b));
  CHECK(count_edges(graph) == 0 && count_nodes(graph) == 2 && count_edges(clone) == 3);
  OK(cudaGraphGetRootNodes(graph, NULL, &count));
  CHECK(count == 2);
  /* In a circle: no executable. */
  exec_t exec;
  OK(cudaGraphAddDependencies(graph, (node_t[]){a, c}, (node_t[]){c, a}, NULL, 2));
  IS(cudaGraphInstantiate(&exec, graph, 0), 1);
  char text[256] = "", path[] = "/tmp/simcuda-dot-XXXXXX";
  FILE *file = fdopen(mkstemp(path), "r");
  CHECK(file);
  OK(cudaGraphDebugDotPrint(clone, path, 0));
  CHECK(fread(text, 1, sizeof text - 1, file) > 0 && strstr(text, "node_1 -> node_2"));
  fclose(file);
  unlink(path);
}

static void events(void) {
  graph_t graph = new_graph();
  event_t early = new_event(), late = new_event(), found;
  node_t wait, record;
  OK(cudaGraphAddEventWaitNode(&wait, graph, NULL, 0, early));
  OK(cudaGraphAddEventRecordNode(&record, graph, &wait, 1, early));
  OK(cudaGraphEventRecordNodeSetEvent(record, late));
  OK(cudaGraphEventRecordNodeGetEvent(record, &found));
  CHECK(found == late);
  OK(cudaGraphEventWaitNodeGetEvent(wait, &found));
  CHECK(found == early);
  IS(cudaGraphEventWaitNodeSetEvent(record, early), 1);
  IS(cudaGraphAddEventWaitNode(&wait, graph, NULL, 0, (event_t)s), 400);
  run(graph);
  OK(cudaEventQuery(late));
}

/* Signals and values, between the nodes of one launch that have no edge between them. */
static void semaphores_and_values(void) {
  graph_t graph = new_graph();
  node_t node;
  struct { int kind; u64 handle[2]; unsigned flags, zero[16]; } fence = {9, {0, 0}, 0, {0}};
  struct { u64 value; unsigned rest[33]; } params = {5, {0}};
  void *semaphore;
  OK(cudaImportExternalSemaphore(&semaphore, &fence));
  struct { void **all; void *params; unsigned count; } both = {&semaphore, &params, 1};
  OK(cudaGraphAddExternalSemaphoresWaitNode(&node, graph, NULL, 0, &both));
  add_copy(graph, node, seen, device, 1);
  OK(cudaGraphAddExternalSemaphoresSignalNode(&node, graph, (node_t[]){add_fill(graph, NULL, device, 's', 1)}, 1, &both));
  struct { int operation; u64 address, value; unsigned flags; u64 alias, pad; } ops[2] = {{5, (u64)(seen + 8), 7, 0, 0, 0}, {4, (u64)(seen + 16), 1, 1, 0, 0}};
  struct { void *context; unsigned count; void *all; unsigned flags; } values = {NULL, 2, ops, 0};
  OK(cuGraphAddBatchMemOpNode(&node, graph, NULL, 0, &values));
  memset(seen, 0, 32);
  exec_t exec = instantiate(graph);
  OK(cudaGraphLaunch(exec, s));
  for (int i = 0; *(volatile u64 *)(seen + 8) != 7; i++) {
    CHECK(i < 5000);
    usleep(1000);
  }
  IS(cudaStreamQuery(s), 600);
  *(volatile u64 *)(seen + 16) = 1;
  OK(cudaStreamSynchronize(s));
  CHECK(seen[0] == 's');
}

/* One call for all types; and nodes whose bodies run as a value says. */
static void any_type_and_conditions(void) {
  graph_t graph = new_graph();
  module_t module;
  function_t function;
  node_t node, body_node;
  u64 if_not, loop, unused;
  int *left = on_device(4);
  any_t fill = {MEMSET, {0}, {0}, 0}, found, condition = {CONDITIONAL, {0}, {0}, 0};
  memcpy(fill.body, &(memset_t){left, 0, 4, 4, 1, 1}, sizeof(memset_t));
  OK(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &fill));
  OK(cudaGraphNodeGetParams(node, &found));
  CHECK(found.type == MEMSET && ((memset_t *)found.body)->value == 4);
  ((memset_t *)found.body)->value = 3;
  OK(cudaGraphNodeSetParams(node, &found));
  found.type = HOST;
  IS(cudaGraphNodeSetParams(node, &found), 1);
  /* A loop that its own kernel ends, after three rounds. */
  OK(cudaGraphConditionalHandleCreate(&loop, graph, 1, 1));
  struct { u64 handle; int type; unsigned size; graph_t *bodies; void *context; } params = {loop, 1, 1, NULL, NULL};
  memcpy(condition.body, &params, sizeof params);
  OK(cudaGraphAddNode(&node, graph, &node, NULL, 1, &condition));
  memcpy(&params, condition.body, sizeof params);
  CHECK(type_of(node) == CONDITIONAL && params.bodies && params.bodies[0]);
  OK(cuModuleLoadData(&module, ptx));
  OK(cuModuleGetFunction(&function, module, "countdown"));
  void *given[] = {&loop, &left};
  kernel_t kernel = {function, {1, 1, 1}, {1, 1, 1}, 0, given, NULL};
  OK(cuGraphAddKernelNode(&body_node, params.bodies[0], NULL, 0, &kernel));
  OK(cuModuleGetFunction(&function, module, "add"));
  int *rounds = on_device(4), one = 1;
  *rounds = 0;
  void *count[] = {&rounds, &one};
  kernel = (kernel_t){function, {1, 1, 1}, {1, 1, 1}, 0, count, NULL};
  OK(cuGraphAddKernelNode(&body_node, params.bodies[0], &body_node, 1, &kernel));
  IS(cudaGraphAddHostNode(&body_node, params.bodies[0], NULL, 0, &(host_t){called, NULL}), 1);
  /* If not: the other of two bodies, which is captured. */
  OK(cudaGraphConditionalHandleCreate(&if_not, graph, 0, 1));
  params.handle = if_not, params.type = 0, params.size = 2;
  memcpy(condition.body, &params, sizeof params);
  OK(cudaGraphAddNode(&node, graph, &node, NULL, 1, &condition));
  memcpy(&params, condition.body, sizeof params);
  add_fill(params.bodies[0], NULL, device, 't', 1);
  OK(cudaStreamBeginCaptureToGraph(s, params.bodies[1], NULL, NULL, 0, GLOBAL));
  OK(cudaMemsetAsync(device, 'e', 1, s));
  OK(cudaStreamEndCapture(s, NULL));
  add_copy(graph, node, seen, device, 1);
  for (int i = 1; i <= 2; i++) {
    run(graph);
    CHECK(*rounds == 3 * i && *left == 0 && seen[0] == 'e');
  }
  IS(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &condition), 1); /* the handle is taken */
  graph_t clone;
  IS(cudaGraphClone(&clone, graph), 1);
  OK(cudaGraphConditionalHandleCreate(&unused, graph, 0, 0));
  exec_t exec;
  IS(cudaGraphInstantiate(&exec, graph, 0), 1);
}

int main(void) {
  s = new_stream();
  device = on_device(64);
  seen = pinned(64);
  each_type();
  copies();
  kernels();
  edges();
  events();
  semaphores_and_values();
  any_type_and_conditions();
  return 0;
}
