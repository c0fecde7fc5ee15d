#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include <emulated/machine.hpp>
#include <emulated/runtime.hpp>

using namespace emulated_cuda;

static thread_local int current_device = 0;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error(), cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error(); }

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidPitchValue: return "cudaErrorInvalidPitchValue";
    case cudaErrorInvalidMemcpyDirection: return "cudaErrorInvalidMemcpyDirection";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge: return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched: return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined: return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation: return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
    case cudaErrorStreamCaptureWrongThread: return "cudaErrorStreamCaptureWrongThread";
    case cudaErrorCapturedEvent: return "cudaErrorCapturedEvent";
    case cudaErrorTooManyPeers: return "cudaErrorTooManyPeers";
    case cudaErrorIllegalState: return "cudaErrorIllegalState";
    default: return "cudaErrorUnknown";
    }
}

const char* cudaGetErrorString(cudaError_t error) {
    static thread_local std::string text;
    const std::scoped_lock lock(the().guard);
    text = error == cudaErrorLaunchFailure      ? "unspecified launch failure: " + the().why
           : error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorInvalidDevice    ? "invalid device ordinal"
           : error == cudaErrorInvalidValue     ? "invalid argument"
                                                : cudaGetErrorName(error);
    return text.c_str();
}

cudaError_t cudaGetDeviceCount(int* count) {
    return api([&] { *count = the().counted.devices; });
}
cudaError_t cudaGetDevice(int* device) {
    return api([&] { *device = current_device; });
}
cudaError_t cudaSetDevice(int device) {
    return api([&] {
        require_device(device);
        current_device = device;
    });
}
cudaError_t cudaDeviceSynchronize() {
    return api([] {
        if (!end_captures()) { refuse(cudaErrorStreamCaptureUnsupported); }
        drain();
        run_all();
    });
}
cudaError_t cudaDriverGetVersion(int* version) {
    return api([&] { *version = CUDART_VERSION; });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    return api([&] { *version = CUDART_VERSION; });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return api([&] {
        require_device(device);
        *properties = {};
        const char* const named = std::getenv("PULSE_EMULATED_DEVICE");
        std::snprintf(properties->name, sizeof properties->name, "%s", named != nullptr ? named : "emulated device");
        properties->totalGlobalMem = the().counted.memory_bytes;
        properties->sharedMemPerBlock = plain_shared_bytes;
        properties->sharedMemPerBlockOptin = the().shared_bytes_limit;
        properties->sharedMemPerMultiprocessor = 228 * 1024;
        properties->regsPerBlock = 65536;
        properties->warpSize = warp_size;
        properties->maxThreadsPerBlock = 1024;
        properties->maxThreadsPerMultiProcessor = 2048;
        properties->major = 9;
        properties->minor = 0;
        properties->multiProcessorCount = the().counted.multiprocessors;
        properties->l2CacheSize = 50 << 20;
        properties->memoryBusWidth = 5120;
    });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return api([&] {
        require_device(device);
        switch (attribute) {
        case cudaDevAttrMultiProcessorCount: *value = the().counted.multiprocessors; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(the().shared_bytes_limit); break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = plain_shared_bytes; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrWarpSize: *value = warp_size; break;
        case cudaDevAttrL2CacheSize: *value = 50 << 20; break;
        default: refuse(cudaErrorNotSupported);
        }
    });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return api([&] {
        *least = 0;
        *greatest = -5;
    });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    return api([&] {
        require_device(device);
        require_device(peer);
        *can = the().counted.most_peers != 0 && device != peer ? 1 : 0;
    });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    return api([&] {
        require_device(peer);
        const int most = the().counted.most_peers;
        if (most == 0) { refuse(cudaErrorPeerAccessUnsupported); }
        std::set<int>& peers = the().peers[current_device];
        if (peers.contains(peer)) { refuse(cudaErrorPeerAccessAlreadyEnabled); }
        if (static_cast<int>(peers.size()) == most) { refuse(cudaErrorTooManyPeers); }
        peers.insert(peer);
    });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    return api([&] {
        if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) { return; }
        if (value > static_cast<int>(the().shared_bytes_limit)) { refuse(cudaErrorInvalidValue); }
        the().allowed_shared_bytes[kernel] = static_cast<std::size_t>(value);
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, std::size_t,
                                                                   unsigned) {
    return api([&] { *blocks = threads <= 0 ? 0 : 2048 / threads; });
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, std::size_t) {
    return api([&] { *blocks = threads <= 0 ? 0 : 2048 / threads; });
}

} // extern "C"
