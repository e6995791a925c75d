/* Two nodes write and read the same byte: 10 if the reader came first, 11 if the writer did. With an argument there is an
 * edge from the writer to the reader. */
#include "graph.h"

int main(int argc, char **argv) {
  char *device = on_device(1), *seen = pinned(1);
  stream_t s = new_stream();
  graph_t graph;
  (void)argv;
  *device = 0;
  OK(cudaGraphCreate(&graph, 0));
  node_t writer = add_fill(graph, NULL, device, 1, 1);
  add_copy(graph, argc > 1 ? writer : NULL, seen, device, 1);
  exec_t exec = instantiate(graph);
  OK(cudaGraphLaunch(exec, s));
  OK(cudaStreamSynchronize(s));
  return 10 + *seen;
}
