#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <emulated/machine.hpp>

namespace emulated_cuda {
namespace {

/// Runs the graph's last nodes and what they depend on, the latest branch first.
void run_graph(const CUgraph_st& graph) {
    std::vector<bool> done(graph.nodes.size());
    std::function<void(std::size_t)> visit = [&](std::size_t n) {
        if (done[n]) { return; }
        done[n] = true;
        for (auto it = graph.nodes[n].after.rbegin(); it != graph.nodes[n].after.rend(); ++it) { visit(*it); }
        if (graph.nodes[n].run) { graph.nodes[n].run(); }
    };
    for (auto it = graph.last.rbegin(); it != graph.last.rend(); ++it) { visit(*it); }
}

/// Whether `to` depends on all the nodes of `from`.
bool joined(const capture& all, const std::vector<std::size_t>& from, const std::vector<std::size_t>& to) {
    std::vector<bool> seen(all.nodes.size());
    std::vector<std::size_t> open = to;
    while (!open.empty()) {
        const std::size_t n = open.back();
        open.pop_back();
        if (seen[n]) { continue; }
        seen[n] = true;
        open.insert(open.end(), all.nodes[n].after.begin(), all.nodes[n].after.end());
    }
    for (const std::size_t n : from) {
        if (!seen[n]) { return false; }
    }
    return true;
}

} // namespace
} // namespace emulated_cuda

using namespace emulated_cuda;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t on, cudaStreamCaptureMode mode) {
    return api([&] {
        CUstream_st& stream = stream_of(on);
        if (&stream == &the().default_stream) { refuse(cudaErrorStreamCaptureUnsupported); }
        if (stream.capturing != nullptr) { refuse(cudaErrorIllegalState); }
        stream.capturing = std::make_shared<capture>();
        static unsigned long long captures = 0;
        stream.capturing->origin = on;
        stream.capturing->id = ++captures;
        stream.capturing->mode = mode;
        stream.capturing->thread = this_thread();
        stream.capturing->streams.insert(on);
        stream.last.clear();
        the().captures.push_back(stream.capturing);
    });
}
cudaError_t cudaStreamEndCapture(cudaStream_t on, cudaGraph_t* graph) {
    return api([&] {
        CUstream_st& stream = stream_of(on);
        if (stream.capturing == nullptr) { refuse(cudaErrorIllegalState); }
        if (stream.capturing->origin != on) { refuse(cudaErrorStreamCaptureUnmatched); }
        const std::shared_ptr<capture> done = stream.capturing;
        const std::vector<std::size_t> last = std::move(stream.last);
        bool all = true;
        for (cudaStream_t other : done->streams) {
            if (other != on && the().streams.contains(other)) {
                all = all && joined(*done, other->last, last);
                other->capturing = nullptr;
                other->last.clear();
            }
        }
        stream.capturing = nullptr;
        stream.last.clear();
        std::erase(the().captures, done);
        *graph = nullptr;
        if (done->broken != cudaSuccess) { refuse(done->broken); }
        if (!all) { refuse(cudaErrorStreamCaptureUnjoined); }
        *graph = new CUgraph_st{done->nodes, last};
    });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t on, cudaStreamCaptureStatus* status) {
    return api([&] {
        const CUstream_st& stream = stream_of(on);
        *status = stream.capturing == nullptr               ? cudaStreamCaptureStatusNone
                  : stream.capturing->broken != cudaSuccess ? cudaStreamCaptureStatusInvalidated
                                                            : cudaStreamCaptureStatusActive;
    });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t on, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
    const cudaError_t asked = cudaStreamIsCapturing(on, status);
    if (asked != cudaSuccess) { return asked; }
    return api([&] {
        if (graph != nullptr || dependencies != nullptr || edges != nullptr || count != nullptr) {
            refuse(cudaErrorNotSupported);
        }
        const CUstream_st& stream = stream_of(on);
        if (id != nullptr && stream.capturing != nullptr) { *id = stream.capturing->id; }
    });
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
    return api([&] {
        if (nodes != nullptr) { refuse(cudaErrorNotSupported); }
        *count = graph->nodes.size();
    });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    return api([&] {
        drain();
        *exec = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
    });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t on) {
    return api([&] { static_cast<void>(stream_of(on)); });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t on) {
    return api([&] { enqueue(stream_of(on), [graph = exec->graph] { run_graph(*graph); }); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return api([&] { delete graph; });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return api([&] { delete exec; });
}

} // extern "C"
