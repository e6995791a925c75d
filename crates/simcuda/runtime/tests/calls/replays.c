/* Random programs of fills and copies in several streams, each copy of what its stream knows to be written: they leave
 * the same bytes whether they are run or captured and replayed. */
#include "graph.h"

enum { STREAMS = 4, EVENTS = 3, CELLS = 64, PROGRAMS = 12 };

static stream_t streams[STREAMS];
static event_t events[EVENTS], forked, joined;
static unsigned char *cells, *seen, expected[CELLS];
static unsigned state;

static unsigned below(unsigned bound) {
  state = state * 1664525u + 1013904223u;
  return (state >> 16) % bound;
}

/* Streams know cells by their own work and by the events that they wait for. */
static void program(unsigned seed) {
  u64 known[STREAMS] = {0}, recorded[EVENTS] = {0};
  int is_recorded[EVENTS] = {0};
  state = seed;
  OK(cudaEventRecord(forked, streams[0]));
  for (int s = 1; s < STREAMS; s++) OK(cudaStreamWaitEvent(streams[s], forked, 0));
  for (int cell = 0; cell < CELLS;) {
    unsigned s = below(STREAMS), e = below(EVENTS), source = below(CELLS);
    switch (below(4)) {
    case 0:
      OK(cudaEventRecord(events[e], streams[s]));
      recorded[e] = known[s];
      is_recorded[e] = 1;
      break;
    case 1:
      if (!is_recorded[e]) break;
      OK(cudaStreamWaitEvent(streams[s], events[e], 0));
      known[s] |= recorded[e];
      break;
    case 2:
      expected[cell] = (unsigned char)(1 + below(255));
      OK(cudaMemsetAsync(cells + cell, expected[cell], 1, streams[s]));
      known[s] |= 1ULL << cell++;
      break;
    case 3:
      if (!(known[s] >> source & 1)) break;
      expected[cell] = expected[source];
      OK(cudaMemcpyAsync(cells + cell, cells + source, 1, D2D, streams[s]));
      known[s] |= 1ULL << cell++;
      break;
    }
  }
  for (int s = 1; s < STREAMS; s++) {
    OK(cudaEventRecord(joined, streams[s]));
    OK(cudaStreamWaitEvent(streams[0], joined, 0));
  }
  OK(cudaMemcpyAsync(seen, cells, CELLS, D2H, streams[0]));
}

static void clear(void) {
  OK(cudaMemsetAsync(cells, 0, CELLS, streams[0]));
  OK(cudaStreamSynchronize(streams[0]));
}

static void is_as_expected(void) {
  OK(cudaStreamSynchronize(streams[0]));
  CHECK(!memcmp(seen, expected, CELLS));
}

int main(void) {
  cells = on_device(CELLS);
  seen = pinned(CELLS);
  forked = new_event(), joined = new_event();
  for (int s = 0; s < STREAMS; s++) streams[s] = new_stream();
  for (int e = 0; e < EVENTS; e++) events[e] = new_event();
  for (unsigned seed = 1; seed <= PROGRAMS; seed++) {
    graph_t graph;
    clear();
    program(seed);
    is_as_expected();
    OK(cudaStreamBeginCapture(streams[0], THREAD_LOCAL));
    program(seed);
    OK(cudaStreamEndCapture(streams[0], &graph));
    exec_t exec = instantiate(graph);
    for (int i = 0; i < 3; i++) {
      clear();
      OK(cudaGraphLaunch(exec, streams[i]));
      OK(cudaStreamSynchronize(streams[i]));
      is_as_expected();
    }
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
  }
  return 0;
}
