# Flags of pulse's own tests, examples and benches; never exported.
include(CheckCXXCompilerFlag)

add_library(pulse_developer INTERFACE)
add_library(pulse::developer ALIAS pulse_developer)
target_compile_options(pulse_developer INTERFACE
    $<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-Wall;-Wextra;-Wpedantic;-Wconversion>
    # Where files are compiled together, a name of one casts no shadow over another's.
    $<$<AND:$<CXX_COMPILER_ID:GNU,Clang,AppleClang>,$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>>:-Wshadow>
    $<$<AND:$<BOOL:${PULSE_WERROR}>,$<CXX_COMPILER_ID:GNU,Clang,AppleClang>>:-Werror>)

# g++ 12 warns of overlapping copies inside std::string's operator+ where there are none (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(pulse_developer INTERFACE -Wno-restrict)
endif()

if(PULSE_NATIVE)
    check_cxx_compiler_flag(-march=native PULSE_HAS_MARCH_NATIVE)
    if(PULSE_HAS_MARCH_NATIVE)
        target_compile_options(pulse_developer INTERFACE -march=native)
    endif()
endif()
