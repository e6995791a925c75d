/* Graphs over the simulated libraries; the first argument says which way they are made. */
#include "../../../kernels/cuda_driver_min.h"
#include "../../../kernels/kernels.cuh"

#define BYTES 4096
#define N 1024

int cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
int cuGraphAddKernelNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *);
int cuGraphKernelNodeSetParams_v2(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *);
int cuGraphExecUpdate_v2(CUgraphExec, CUgraph, cudaGraphExecUpdateResultInfo *);
int cuStreamBeginCapture_v2(CUstream, int);
int cuStreamUpdateCaptureDependencies_v2(CUstream, CUgraphNode *, const void *, size_t, unsigned);
int cuGraphAddNode_v2(CUgraphNode *, CUgraph, const CUgraphNode *, const void *, size_t, void *);
int cudaGraphExecNodeSetParams(cudaGraphExec_t, cudaGraphNode_t, void *);
int cuGraphHostNodeGetParams(CUgraphNode, struct cudaHostNodeParams *);
int cudaGraphHostNodeGetParams(cudaGraphNode_t, struct cudaHostNodeParams *);
int cudaGraphHostNodeSetParams(cudaGraphNode_t, const struct cudaHostNodeParams *);
int cudaGraphNodeGetParams(cudaGraphNode_t, void *);
int cudaGraphNodeFindInClone(cudaGraphNode_t *, cudaGraphNode_t, cudaGraph_t);

static cudaStream_t s, t;
static cudaEvent_t e;
static float *p, *q;
static void *arguments[3];
static int n = N;
static float value = 1;
static struct cudaKernelNodeParams kernel;
static struct cudaMemsetParams rows;
static struct cudaMemcpy3DParms volume;
static struct cudaMemAllocNodeParams memory;

static int calls;
static void host(void *which) { calls += which == &n; }

static void prepare(void) {
    CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    CHECK(cudaMalloc((void **)&p, BYTES));
    CHECK(cudaMalloc((void **)&q, BYTES));
    arguments[0] = &p, arguments[1] = &n, arguments[2] = &value;
    kernel.func = (void *)fill;
    kernel.gridDim = kernel.blockDim = (dim3){1, 1, 1};
    kernel.kernelParams = arguments;
    rows.dst = p, rows.pitch = 256, rows.elementSize = 4, rows.width = 16, rows.height = 3;
    volume.srcPtr = (struct cudaPitchedPtr){p, 256, 256, 4};
    volume.dstPtr = (struct cudaPitchedPtr){q, 256, 256, 4};
    volume.extent = (struct cudaExtent){128, 4, 2};
    volume.kind = cudaMemcpyDeviceToDevice;
    memory.poolProps.allocType = cudaMemAllocationTypePinned;
    memory.poolProps.location.type = cudaMemLocationTypeDevice;
    memory.bytesize = BYTES;
}

static cudaGraphExec_t launched(cudaGraph_t graph) {
    cudaGraphExec_t executable;
    CHECK(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagAutoFreeOnLaunch));
    CHECK(cudaGraphLaunch(executable, s));
    CHECK(cudaStreamSynchronize(s));
    return executable;
}

/* Any node's parameters: a type, and after 16 bytes those of the type. */
struct any { int type, none[3]; char rest[29 * 8]; long last; };

static struct any any(int type, const void *parameters, size_t at, size_t size) {
    struct any node;
    memset(&node, 0, sizeof node);
    node.type = type;
    memcpy(node.rest + at, parameters, size);
    return node;
}

/* What the graph's host node calls is the program's own. */
static void own(cudaGraph_t graph) {
    cudaGraphNode_t nodes[8];
    size_t count = 8, i;
    int found = 0;
    CHECK(cudaGraphGetNodes(graph, nodes, &count));
    for (i = 0; i < count; i++) {
        enum cudaGraphNodeType type;
        struct cudaHostNodeParams told;
        struct any any;
        CHECK(cudaGraphNodeGetType(nodes[i], &type));
        if (type != cudaGraphNodeTypeHost) continue;
        found++;
        CHECK(cudaGraphHostNodeGetParams(nodes[i], &told));
        if (told.fn != host || told.userData != &n) exit(20);
        if (cuGraphHostNodeGetParams(nodes[i], &told) || told.fn != host || told.userData != &n) exit(21);
        memset(&any, 0, sizeof any);
        CHECK(cudaGraphNodeGetParams(nodes[i], &any));
        memcpy(&told, any.rest, sizeof told);
        if (told.fn != host || told.userData != &n) exit(22);
        CHECK(cudaGraphHostNodeSetParams(nodes[i], &told));
        CHECK(cudaGraphHostNodeGetParams(nodes[i], &told));
        if (told.fn != host || told.userData != &n) exit(23);
    }
    if (found != 1) exit(24);
}

static void captured(void) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    float *r;
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    LAUNCH(fill, s, p, n, value);
    CHECK(cudaEventRecord(e, s));
    CHECK(cudaStreamWaitEvent(t, e, 0));
    CHECK(cudaMallocAsync((void **)&r, BYTES, t));
    CHECK(cudaLaunchHostFunc(t, host, &n));
    CHECK(cudaFreeAsync(r, t));
    CHECK(cudaEventRecordWithFlags(e, t, cudaEventRecordExternal));
    CHECK(cudaEventRecord(e, t));
    CHECK(cudaStreamWaitEvent(s, e, 0));
    CHECK(cudaStreamEndCapture(s, &graph));
    executable = launched(graph);
    if (calls != 1) exit(25);
    own(graph);
    CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(cudaGraphDestroy(graph));
    (void)cudaStreamSynchronize(s);
    if (cudaStreamEndCapture(s, &graph) != cudaErrorStreamCaptureInvalidated) exit(4);
    CHECK(cudaGraphExecDestroy(executable));
}

static void built(void) {
    cudaGraph_t graph, child;
    cudaGraphNode_t nodes[11];
    struct cudaHostNodeParams function = {host, NULL};
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddKernelNode(&nodes[0], graph, NULL, 0, &kernel));
    CHECK(cudaGraphAddMemcpyNode(&nodes[1], graph, nodes, 1, &volume));
    CHECK(cudaGraphAddMemcpyNode1D(&nodes[2], graph, nodes, 2, p, q, 64, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphAddMemsetNode(&nodes[3], graph, &nodes[2], 1, &rows));
    CHECK(cudaGraphAddHostNode(&nodes[4], graph, &nodes[3], 1, &function));
    CHECK(cudaGraphCreate(&child, 0));
    CHECK(cudaGraphAddEmptyNode(&nodes[5], child, NULL, 0));
    CHECK(cudaGraphAddChildGraphNode(&nodes[6], graph, &nodes[4], 1, child));
    CHECK(cudaGraphAddEventRecordNode(&nodes[7], graph, &nodes[6], 1, e));
    CHECK(cudaGraphAddEventWaitNode(&nodes[8], graph, &nodes[7], 1, e));
    CHECK(cudaGraphAddMemAllocNode(&nodes[9], graph, &nodes[8], 1, &memory));
    CHECK(cudaGraphAddMemFreeNode(&nodes[10], graph, &nodes[9], 1, memory.dptr));
    CHECK(cudaGraphExecDestroy(launched(graph)));
    CHECK(cudaGraphDestroy(graph));
}

static void typed(void) {
    cudaGraph_t graph, child;
    cudaGraphNode_t nodes[9];
    struct cudaHostNodeParams function = {host, NULL};
    struct cudaConditionalNodeParams condition = {0};
    struct any node;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));
#define ADD(index, ...)                                                                          \
    node = any(__VA_ARGS__);                                                                     \
    CHECK(cudaGraphAddNode(&nodes[index], graph, nodes + index - !!index, NULL, !!index, (void *)&node))
    ADD(0, cudaGraphNodeTypeKernel, &kernel, 0, sizeof kernel);
    ADD(1, cudaGraphNodeTypeMemcpy, &volume, 16, sizeof volume);
    ADD(2, cudaGraphNodeTypeMemset, &rows, 0, sizeof rows);
    ADD(3, cudaGraphNodeTypeHost, &function, 0, sizeof function);
    ADD(4, cudaGraphNodeTypeGraph, &child, 0, sizeof child);
    ADD(5, cudaGraphNodeTypeEmpty, NULL, 0, 0);
    ADD(6, cudaGraphNodeTypeEventRecord, &e, 0, sizeof e);
    ADD(7, cudaGraphNodeTypeWaitEvent, &e, 0, sizeof e);
    CHECK(cudaGraphConditionalHandleCreate(&condition.handle, graph, 0, cudaGraphCondAssignDefault));
    condition.type = cudaGraphCondTypeIf;
    condition.size = 1;
    ADD(8, cudaGraphNodeTypeConditional, &condition, 0, sizeof condition);
    memcpy(&condition, node.rest, sizeof condition);
    CHECK(cudaGraphAddMemsetNode(nodes, condition.phGraph_out[0], NULL, 0, &rows));
    CHECK(cudaGraphExecDestroy(launched(graph)));
}

static void changed(void) {
    cudaGraph_t graph, clone, child;
    cudaGraphExec_t executable;
    cudaGraphNode_t nodes[7], found;
    cudaGraphExecUpdateResultInfo result;
    struct any node;
    CHECK(cudaGraphCreate(&child, 0));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddKernelNode(&nodes[0], graph, NULL, 0, &kernel));
    CHECK(cudaGraphAddMemsetNode(&nodes[1], graph, NULL, 0, &rows));
    CHECK(cudaGraphAddMemcpyNode1D(&nodes[2], graph, NULL, 0, p, q, 64, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphAddEventRecordNode(&nodes[3], graph, NULL, 0, e));
    CHECK(cudaGraphAddEventWaitNode(&nodes[4], graph, NULL, 0, e));
    CHECK(cudaGraphAddChildGraphNode(&nodes[5], graph, NULL, 0, child));
    CHECK(cudaGraphAddEmptyNode(&nodes[6], graph, NULL, 0));
    CHECK(cudaGraphAddDependencies(graph, nodes, nodes + 1, NULL, 5));
    CHECK(cudaGraphRemoveDependencies(graph, nodes + 1, nodes + 2, NULL, 1));
    CHECK(cudaGraphDestroyNode(nodes[6]));
    CHECK(cudaGraphClone(&clone, graph));
    CHECK(cudaGraphNodeFindInClone(&found, nodes[0], clone));
    arguments[0] = &q, rows.dst = q;
    CHECK(cudaGraphKernelNodeSetParams(nodes[0], &kernel));
    CHECK(cudaGraphMemsetNodeSetParams(nodes[1], &rows));
    CHECK(cudaGraphMemcpyNodeSetParams1D(nodes[2], q, p, 32, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphEventRecordNodeSetEvent(nodes[3], e));
    CHECK(cudaGraphEventWaitNodeSetEvent(nodes[4], e));
    CHECK(cudaGraphInstantiate(&executable, graph, 0));
    arguments[0] = &p, rows.dst = p;
    CHECK(cudaGraphExecKernelNodeSetParams(executable, nodes[0], &kernel));
    CHECK(cudaGraphExecMemsetNodeSetParams(executable, nodes[1], &rows));
    CHECK(cudaGraphExecMemcpyNodeSetParams1D(executable, nodes[2], p, q, 16, cudaMemcpyDeviceToDevice));
    CHECK(cudaGraphExecEventRecordNodeSetEvent(executable, nodes[3], e));
    CHECK(cudaGraphExecEventWaitNodeSetEvent(executable, nodes[4], e));
    CHECK(cudaGraphExecChildGraphNodeSetParams(executable, nodes[5], child));
    node = any(cudaGraphNodeTypeMemset, &rows, 0, sizeof rows);
    CHECK(cudaGraphExecNodeSetParams(executable, nodes[1], &node));
    CHECK(cudaGraphNodeSetEnabled(executable, nodes[0], 0));
    CHECK(cudaGraphExecUpdate(executable, clone, &result));
    CHECK(cudaGraphChildGraphNodeGetGraph(nodes[5], &child));
}

static void driven(void) {
    CUgraph graph;
    CUgraphExec executable;
    CUgraphNode nodes[4];
    CUcontext context;
    CUDA_KERNEL_NODE_PARAMS function;
    CUDA_MEMSET_NODE_PARAMS zeros;
    CUDA_MEMCPY3D copy;
    cudaGraphExecUpdateResultInfo result;
    struct any node;
    memset(&function, 0, sizeof function);
    memset(&copy, 0, sizeof copy);
    memcpy(&zeros, &rows, sizeof zeros);
    if (cuCtxGetCurrent(&context) || cudaGetFuncBySymbol(&function.func, (const void *)fill)) exit(5);
    function.gridDimX = function.gridDimY = function.gridDimZ = 1;
    function.blockDimX = function.blockDimY = function.blockDimZ = 1;
    function.kernelParams = arguments;
    copy.srcMemoryType = copy.dstMemoryType = 2;
    copy.srcDevice = (size_t)p, copy.dstDevice = (size_t)q;
    copy.WidthInBytes = 48, copy.Height = copy.Depth = 1;
    if (cuGraphCreate(&graph, 0)) exit(6);
    if (cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 0, &function)) exit(7);
    if (cuGraphAddMemsetNode(&nodes[1], graph, nodes, 1, &zeros, context)) exit(8);
    if (cuGraphAddMemcpyNode(&nodes[2], graph, nodes, 2, &copy, context)) exit(9);
    if (cuGraphInstantiateWithFlags(&executable, graph, 1)) exit(10);
    arguments[0] = &q;
    if (cuGraphKernelNodeSetParams_v2(nodes[0], &function)) exit(11);
    if (cuGraphExecUpdate_v2(executable, graph, &result)) exit(12);
    if (cuGraphLaunch(executable, s)) exit(13);
    if (cuStreamBeginCapture_v2(s, 0)) exit(14);
    if (cuGraphLaunch(executable, s)) exit(15);
    if (cuStreamUpdateCaptureDependencies_v2(s, NULL, NULL, 0, 1)) exit(16);
    if (cuStreamEndCapture(s, &graph)) exit(17);
    if (cuGraphExecDestroy(executable)) exit(18);
    node = any(cudaGraphNodeTypeKernel, &function, 0, sizeof function);
    if (cuGraphAddNode_v2(nodes, graph, NULL, NULL, 0, &node)) exit(19);
}

/* The second kernel may begin before the first one ends. */
static void early(void) {
    cudaGraph_t graph;
    cudaGraphNode_t nodes[3];
    cudaGraphEdgeData edge = {cudaGraphKernelNodePortProgrammatic, 0, cudaGraphDependencyTypeProgrammatic, {0}};
    struct any node = any(cudaGraphNodeTypeKernel, &kernel, 0, sizeof kernel);
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddKernelNode(&nodes[0], graph, NULL, 0, &kernel));
    CHECK(cudaGraphAddKernelNode(&nodes[1], graph, NULL, 0, &kernel));
    CHECK(cudaGraphAddDependencies(graph, nodes, nodes + 1, &edge, 1));
    CHECK(cudaGraphAddNode(&nodes[2], graph, nodes + 1, &edge, 1, (void *)&node));
    CHECK(cudaGraphExecDestroy(launched(graph)));
}

int main(int count, char **words) {
    const char *name = count > 1 ? words[1] : "";
    prepare();
    if (!strcmp(name, "captured")) captured();
    if (!strcmp(name, "built")) built();
    if (!strcmp(name, "typed")) typed();
    if (!strcmp(name, "changed")) changed();
    if (!strcmp(name, "driven")) driven();
    if (!strcmp(name, "early")) early();
    printf("%s\n", name);
    return 0;
}
