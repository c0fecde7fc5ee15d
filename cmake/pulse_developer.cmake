# Flags of pulse's own tests, examples and benches; never exported.
include(CheckCXXCompilerFlag)

add_library(pulse_developer INTERFACE)
add_library(pulse::developer ALIAS pulse_developer)
target_compile_options(pulse_developer INTERFACE
    $<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion>
    $<$<AND:$<BOOL:${PULSE_WERROR}>,$<CXX_COMPILER_ID:GNU,Clang,AppleClang>>:-Werror>)

if(PULSE_NATIVE)
    check_cxx_compiler_flag(-march=native PULSE_HAS_MARCH_NATIVE)
    if(PULSE_HAS_MARCH_NATIVE)
        target_compile_options(pulse_developer INTERFACE -march=native)
    endif()
endif()
