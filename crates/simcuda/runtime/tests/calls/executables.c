/* Executable graphs: order among launches, changes to them, and how they are made. */
#include "graph.h"

typedef struct { u64 flags; stream_t stream; node_t node; int result; } params_t;
typedef struct { int result; node_t node, from; } update_t;

int cudaGraphInstantiateWithFlags(exec_t *, graph_t, u64), cudaGraphInstantiateWithParams(exec_t *, graph_t, params_t *);
int cudaGraphExecGetFlags(exec_t, u64 *), cudaGraphUpload(exec_t, stream_t), cudaGraphExecUpdate(exec_t, graph_t, update_t *);
int cudaGraphNodeSetEnabled(exec_t, node_t, unsigned), cudaGraphNodeGetEnabled(exec_t, node_t, unsigned *);
int cudaGraphExecMemsetNodeSetParams(exec_t, node_t, const memset_t *), cudaGraphExecHostNodeSetParams(exec_t, node_t, const host_t *);
int cudaGraphExecMemcpyNodeSetParams1D(exec_t, node_t, void *, const void *, size_t, int);
int cudaGraphExecChildGraphNodeSetParams(exec_t, node_t, graph_t), cudaGraphChildGraphNodeGetGraph(node_t, graph_t *);
int cudaGraphAddEventRecordNode(node_t *, graph_t, const node_t *, size_t, event_t);
int cudaGraphExecEventRecordNodeSetEvent(exec_t, node_t, event_t);
int cudaGraphAddDependencies(graph_t, const node_t *, const node_t *, const edge_t *, size_t);
int cudaUserObjectCreate(void **, void *, void (*)(void *), unsigned, unsigned), cudaUserObjectRetain(void *, unsigned);
int cudaUserObjectRelease(void *, unsigned), cudaGraphRetainUserObject(graph_t, void *, unsigned, unsigned);
int cudaGraphReleaseUserObject(graph_t, void *, unsigned), cudaGraphClone(graph_t *, graph_t);
int cuGraphInstantiate_v2(exec_t *, graph_t, node_t *, char *, size_t), cuGraphExecUpdate(exec_t, graph_t, node_t *, int *);
int cuStreamWaitValue32_v2(stream_t, u64, unsigned, unsigned), cuGraphLaunch_ptsz(exec_t, stream_t);

static stream_t s;
static char *device, *seen;

static graph_t new_graph(void) {
  graph_t graph;
  OK(cudaGraphCreate(&graph, 0));
  return graph;
}

static void run(exec_t exec) {
  OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
}

static void called(void *counter) { ++*(int *)counter; }

/* A launch comes after its stream and after the executable's earlier launches, wherever those are. */
static void order(void) {
  stream_t other = new_stream();
  volatile unsigned *flag = pinned(4);
  graph_t graph = new_graph();
  add_copy(graph, add_fill(graph, NULL, device, 'g', 1), seen, device, 1);
  exec_t exec = instantiate(graph);
  memset(seen, 0, 8);
  OK(cuStreamWaitValue32_v2(s, (u64)flag, 1, 1));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaMemsetAsync(device + 1, 's', 1, s));
  OK(cudaGraphLaunch(exec, other));
  for (int i = 0; i < 10; i++) IS(cudaStreamQuery(other), 600);
  CHECK(!seen[0]);
  *flag = 1;
  OK(cudaStreamSynchronize(other));
  CHECK(seen[0] == 'g');
  OK(cudaGraphExecDestroy(exec)); /* while nothing more of it is pending but what is there runs on */
  OK(cudaDeviceSynchronize());
  /* Many more nodes than a queue holds, and the blocking stream of this thread. */
  node_t last = NULL;
  graph = new_graph();
  for (int i = 0; i < 3000; i++) last = add_fill(graph, last, device, i, 1);
  add_copy(graph, last, seen, device, 1);
  exec = instantiate(graph);
  OK(cuGraphLaunch_ptsz(exec, NULL));
  OK(cudaMemsetAsync(device, 'l', 1, NULL)); /* the legacy stream waits */
  OK(cudaDeviceSynchronize());
  CHECK(seen[0] == (char)2999 && device[0] == 'l');
}

/* What is changed is so for later launches, and not in the graph. */
static void changes(void) {
  graph_t graph = new_graph(), inner = new_graph(), child;
  event_t one = new_event(), two = new_event();
  int first = 0, second = 0;
  unsigned enabled;
  node_t fill = add_fill(graph, NULL, device, 'a', 2), copy = add_copy(graph, fill, seen, device, 2), host, nested, record;
  OK(cudaGraphAddHostNode(&host, graph, &copy, 1, &(host_t){called, &first}));
  node_t within = add_fill(inner, NULL, device + 8, 'i', 1);
  OK(cudaGraphAddChildGraphNode(&nested, graph, &host, 1, inner));
  OK(cudaGraphAddEventRecordNode(&record, graph, &nested, 1, one));
  exec_t exec = instantiate(graph);
  OK(cudaGraphLaunch(exec, s));
  OK(cudaGraphExecMemsetNodeSetParams(exec, fill, &(memset_t){device, 0, 'b', 1, 2, 1}));
  OK(cudaStreamSynchronize(s));
  CHECK(seen[1] == 'a' && first == 1 && device[8] == 'i');
  OK(cudaGraphExecMemcpyNodeSetParams1D(exec, copy, seen, device, 1, D2H));
  OK(cudaGraphExecHostNodeSetParams(exec, host, &(host_t){called, &second}));
  OK(cudaGraphExecEventRecordNodeSetEvent(exec, record, two));
  OK(cudaGraphChildGraphNodeGetGraph(nested, &child));
  within = node_at(child, 0);
  OK(cudaGraphExecMemsetNodeSetParams(exec, within, &(memset_t){device + 8, 0, 'j', 1, 1, 1}));
  run(exec);
  CHECK(seen[0] == 'b' && seen[1] == 'a' && first == 1 && second == 1 && device[8] == 'j');
  IS(cudaGraphExecMemsetNodeSetParams(exec, copy, &(memset_t){device, 0, 'b', 1, 2, 1}), 1);
  graph_t other = new_graph();
  node_t stranger = add_fill(other, NULL, device + 8, 'k', 1);
  IS(cudaGraphExecMemsetNodeSetParams(exec, stranger, &(memset_t){device, 0, 'b', 1, 2, 1}), 1);
  OK(cudaGraphExecChildGraphNodeSetParams(exec, nested, other));
  add_fill(other, NULL, device, 'x', 1);
  IS(cudaGraphExecChildGraphNodeSetParams(exec, nested, other), 1);
  OK(cudaGraphNodeSetEnabled(exec, fill, 0));
  OK(cudaGraphNodeGetEnabled(exec, fill, &enabled));
  CHECK(!enabled);
  IS(cudaGraphNodeSetEnabled(exec, host, 0), 1);
  memset(device, 'c', 2);
  run(exec);
  CHECK(seen[0] == 'c' && device[8] == 'k');
  OK(cudaGraphNodeSetEnabled(exec, fill, 1));
  run(exec);
  CHECK(seen[0] == 'b');
  run(instantiate(graph));
  CHECK(seen[1] == 'a' && device[8] == 'i' && first == 2);
}

static void updates(void) {
  graph_t graph = new_graph(), same = new_graph(), longer = new_graph(), turned = new_graph(), typed = new_graph();
  update_t result;
  node_t node;
  int code;
  add_copy(graph, add_fill(graph, NULL, device, 'a', 1), seen, device, 1);
  add_copy(same, add_fill(same, NULL, device, 'z', 1), seen + 1, device, 1);
  exec_t exec = instantiate(graph);
  OK(cudaGraphExecUpdate(exec, same, &result));
  CHECK(result.result == 0 && !result.node);
  OK(cudaGraphDestroy(same));
  run(exec);
  CHECK(seen[1] == 'z');
  add_copy(longer, add_fill(longer, NULL, device, 'a', 1), seen, device, 1);
  OK(cudaGraphAddEmptyNode(&node, longer, NULL, 0));
  IS(cudaGraphExecUpdate(exec, longer, &result), 910);
  CHECK(result.result == 2 && !result.node);
  add_fill(turned, NULL, device, 'a', 1);
  node = add_copy(turned, NULL, seen, device, 1);
  IS(cudaGraphExecUpdate(exec, turned, &result), 910);
  CHECK(result.result == 2 && result.node == node);
  OK(cudaGraphAddEmptyNode(&node, typed, NULL, 0));
  add_copy(typed, node, seen, device, 1);
  node_t found;
  IS(cuGraphExecUpdate(exec, typed, &found, &code), 910);
  CHECK(code == 3 && found == node);
  memset(seen, 0, 2);
  run(exec);
  CHECK(seen[1] == 'z'); /* as it was */
}

static void ways_to_make_one(void) {
  graph_t graph = new_graph();
  exec_t exec;
  u64 flags;
  char log[8] = "old";
  node_t node = add_fill(graph, NULL, device, 'a', 1), other = add_fill(graph, node, device, 'b', 1), at, host;
  OK(cudaGraphInstantiateWithFlags(&exec, graph, 8));
  OK(cudaGraphExecGetFlags(exec, &flags));
  CHECK(flags == 8);
  OK(cudaGraphUpload(exec, s));
  IS(cudaGraphInstantiateWithFlags(&exec, graph, 2), 1);
  IS(cudaGraphInstantiateWithFlags(&exec, graph, 1 | 4), 1);
  OK(cuGraphInstantiate_v2(&exec, graph, &at, log, sizeof log));
  CHECK(!log[0]);
  params_t params = {2, s, node, 9};
  OK(cudaGraphInstantiateWithParams(&exec, graph, &params));
  CHECK(params.result == 0 && !params.node);
  OK(cudaGraphAddHostNode(&host, graph, NULL, 0, &(host_t){called, log}));
  params.flags = 4;
  IS(cudaGraphInstantiateWithParams(&exec, graph, &params), 1);
  CHECK(params.result == 3 && params.node == host);
  OK(cudaGraphAddDependencies(graph, &other, &node, NULL, 1));
  params.flags = 0;
  IS(cudaGraphInstantiateWithParams(&exec, graph, &params), 1);
  CHECK(params.result == 2 && (params.node == node || params.node == other));
  graph = new_graph(); /* with nothing in it */
  run(instantiate(graph));
}

/* An object lives as long as a graph or an executable has it, and no launch of theirs is pending. */
static void user_objects(void) {
  graph_t graph = new_graph(), clone;
  volatile unsigned *flag = pinned(4);
  volatile int *gone = pinned(sizeof(int));
  void *object;
  IS(cudaUserObjectCreate(&object, (void *)gone, called, 1, 0), 1);
  OK(cudaUserObjectCreate(&object, (void *)gone, called, 1, 1));
  OK(cudaUserObjectRetain(object, 2));
  OK(cudaUserObjectRelease(object, 2));
  OK(cudaGraphRetainUserObject(graph, object, 1, 1)); /* what was ours */
  OK(cudaGraphRetainUserObject(graph, object, 1, 0));
  OK(cudaGraphReleaseUserObject(graph, object, 1));
  IS(cudaGraphReleaseUserObject(graph, object, 2), 1);
  add_fill(graph, NULL, device, 'u', 1);
  OK(cudaGraphClone(&clone, graph));
  exec_t exec = instantiate(graph);
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphDestroy(clone));
  *flag = 0;
  OK(cuStreamWaitValue32_v2(s, (u64)flag, 1, 1));
  OK(cudaGraphLaunch(exec, s));
  OK(cudaGraphExecDestroy(exec));
  usleep(50000);
  CHECK(!*gone);
  *flag = 1;
  for (int i = 0; !*gone; i++) {
    CHECK(i < 5000);
    usleep(1000);
  }
  OK(cudaStreamSynchronize(s));
  CHECK(*gone == 1);
  IS(cudaUserObjectRelease(object, 1), 1);
}

int main(void) {
  s = new_stream();
  device = on_device(64);
  seen = pinned(64);
  order();
  changes();
  updates();
  ways_to_make_one();
  user_objects();
  return 0;
}
