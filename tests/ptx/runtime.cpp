#include <array>
#include <cstddef>
#include <map>
#include <string>

#include <cuda_runtime.h>

// The functions of CUDA's runtime that host code of kernels calls. A launch calls a function that Python provides.

namespace {

using launcher = void (*)(const char* kernel, const unsigned* grid, const unsigned* block, std::size_t shared_bytes,
                          void** parameters);

launcher launch_by = nullptr;

std::map<const void*, std::string>& names() {
    static std::map<const void*, std::string> instance;
    return instance;
}
std::map<const void*, std::size_t>& allowed_bytes() {
    static std::map<const void*, std::size_t> instance;
    return instance;
}

constexpr std::size_t plain_shared_bytes = 48 * 1024;
constexpr std::size_t most_shared_bytes = 99 * 1024;

} // namespace

extern "C" {

void launch_with(launcher by) { launch_by = by; }

void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    names()[host] = name;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
    return cudaSuccess;
}
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) { return cudaErrorNotSupported; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t) {
    return cudaErrorNotSupported;
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** parameters) {
    const std::size_t bytes = config->dynamicSmemBytes;
    const std::size_t allowed = allowed_bytes()[host];
    if (bytes > (allowed > plain_shared_bytes ? allowed : plain_shared_bytes)) { return cudaErrorInvalidValue; }
    const std::array grid{config->gridDim.x, config->gridDim.y, config->gridDim.z};
    const std::array block{config->blockDim.x, config->blockDim.y, config->blockDim.z};
    launch_by(names().at(host).c_str(), grid.data(), block.data(), bytes, parameters);
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute, int value) {
    if (static_cast<std::size_t>(value) > most_shared_bytes) { return cudaErrorInvalidValue; }
    allowed_bytes()[host] = static_cast<std::size_t>(value);
    return cudaSuccess;
}
cudaError_t cudaFuncGetName(const char** name, const void* host) {
    *name = names().at(host).c_str();
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
}
