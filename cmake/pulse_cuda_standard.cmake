# pulse_cuda_standard(<variable>)
#
# The compile option that makes nvcc take C++20. CMake's own cuda_std_20 is not known for nvcc before 3.25.2, and a
# standard that is asked for by a property is lowered without a word.
function(pulse_cuda_standard out)
    set(${out} "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-std=c++20>" PARENT_SCOPE)
endfunction()
