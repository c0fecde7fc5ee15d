# pulse_cuda_standard(<variable>)
#
# The compile option that makes nvcc use C++20. CMake before 3.25.2 does not know cuda_std_20 for nvcc, and silently
# lowers a standard that a property asks for.
function(pulse_cuda_standard out)
    set(${out} "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20>" PARENT_SCOPE)
endfunction()
