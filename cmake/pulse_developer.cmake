# Flags of pulse's own tests, examples and benches; never exported.
include(CheckCXXCompilerFlag)

add_library(pulse_developer INTERFACE)
add_library(pulse::developer ALIAS pulse_developer)
target_compile_options(pulse_developer INTERFACE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>:-Wall;-Wextra;-Wpedantic;-Wconversion>
    # In a unity build, a name in one file does not shadow one in another.
    $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>,$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>>:-Wshadow>
    $<$<AND:$<BOOL:${PULSE_WERROR}>,$<COMPILE_LANG_AND_ID:CXX,GNU,Clang,AppleClang>>:-Werror>
    # nvcc's own warnings; the header tests ask for those of its host compiler
    "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:SHELL:-Werror all-warnings>")

# Garbage collection takes g++ up to a sixth of its time here, so it starts at a heap of 1.5 GB.
if(PROJECT_IS_TOP_LEVEL)
    set(later --param=ggc-min-heapsize=1500000)
    add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:${later}>)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        add_compile_options($<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:-Xcompiler=${later}>)
    endif()
endif()

# g++ 12 warns of overlapping copies inside std::string's operator+ that do not exist (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(pulse_developer INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

if(PULSE_NATIVE)
    check_cxx_compiler_flag(-march=native PULSE_HAS_MARCH_NATIVE)
    if(PULSE_HAS_MARCH_NATIVE)
        target_compile_options(pulse_developer INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
    endif()
endif()

# Under a sanitizer of any compiler, tests that would only take long are left out or shortened.
string(TOUPPER "CMAKE_CXX_FLAGS_${CMAKE_BUILD_TYPE}" flags)
set(PULSE_SANITIZED FALSE)
if("${CMAKE_CXX_FLAGS} ${${flags}}" MATCHES "-fsanitize")
    set(PULSE_SANITIZED TRUE)
endif()
