# pulse::compiled: the non-template bodies, compiled once into a static library; targets that link it include only
# declarations (pulse/core/separate.hpp). It has the parts pulse and, if available, io.
set(pulse_compiled_dir ${PROJECT_BINARY_DIR}/compiled)

# pulse_add_compiled(<name> <source>...): pulse::<name>, built if a target links it or if it is installed.
function(pulse_add_compiled name)
    add_library(pulse_${name} STATIC ${ARGN})
    add_library(pulse::${name} ALIAS pulse_${name})
    set_target_properties(pulse_${name} PROPERTIES EXPORT_NAME ${name} POSITION_INDEPENDENT_CODE ON)
    if(NOT PULSE_INSTALL)
        set_target_properties(pulse_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
endfunction()

# pulse_add_compiled_part(<name> <definition> <preamble> <body>...): pulse::<name>, one unit of these bodies; targets
# that link it include none of them.
function(pulse_add_compiled_part name definition preamble)
    set(unit "#define ${definition}\n${preamble}")
    foreach(body IN LISTS ARGN)
        file(RELATIVE_PATH body ${pulse_include_dir} ${body})
        string(APPEND unit "#include <${body}>\n")
    endforeach()
    file(CONFIGURE OUTPUT ${pulse_compiled_dir}/${name}.cpp CONTENT "${unit}" @ONLY)
    pulse_add_compiled(${name} ${pulse_compiled_dir}/${name}.cpp)
    target_compile_definitions(pulse_${name} INTERFACE ${definition})
endfunction()

# The planner is one unit with everything its bodies call; other rooms include their bodies by name.
set(planner "#define PULSE_COMPILING\n")
set(launch "#define PULSE_SEPARATE_COMPILATION\n")
set(io ${launch})
foreach(part IN ITEMS pulse io)
    foreach(body IN LISTS pulse_${part}_bodies)
        file(RELATIVE_PATH body ${pulse_include_dir} ${body})
        if(part STREQUAL "io")
            string(APPEND io "#include <${body}>\n")
        elseif(body MATCHES "^pulse/launch/")
            string(APPEND launch "#include <${body}>\n")
        else()
            string(APPEND planner "#include <${body}>\n")
        endif()
    endforeach()
endforeach()

set(units planner launch)
if(TARGET pulse::io)
    list(APPEND units io)
endif()
set(sources)
foreach(unit IN LISTS units)
    if(${unit} MATCHES "#include")
        file(CONFIGURE OUTPUT ${pulse_compiled_dir}/${unit}.cpp CONTENT "${${unit}}" @ONLY)
        list(APPEND sources ${pulse_compiled_dir}/${unit}.cpp)
    endif()
endforeach()

pulse_add_compiled(compiled ${sources})
target_compile_definitions(pulse_compiled INTERFACE PULSE_SEPARATE_COMPILATION)
target_link_libraries(pulse_compiled PUBLIC pulse::pulse $<TARGET_NAME_IF_EXISTS:pulse::io>)

# pulse::compiled_host: the same for pulse::host, as a separate library: its kernels use the vector width and OpenMP of
# the project that compiles it. A target that links it may use any flags, because it includes no kernel.
if(NOT TARGET pulse::host)
    return()
endif()
pulse_add_compiled_part(compiled_host PULSE_SEPARATE_HOST "#define PULSE_COMPILING\n" ${pulse_host_bodies})
target_link_libraries(pulse_compiled_host PUBLIC pulse::compiled pulse::host)
if(PULSE_NATIVE AND PULSE_HAS_MARCH_NATIVE)
    target_compile_options(pulse_compiled_host PRIVATE -march=native)
endif()
# The mathematics is tested as users build it, whatever flags the rest has.
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_compile_options(pulse_compiled_host PRIVATE $<$<CONFIG:Release>:-O3>)
endif()

# Dependencies of the installed library: this oneDNN or a later one of the same major version, and OpenMP if used.
string(REGEX MATCH "^[0-9]+" major "${OneDNN_VERSION}")
math(EXPR next "${major} + 1")
set(pulse_compiled_onednn ${OneDNN_VERSION}...<${next})
set(pulse_compiled_openmp)
if(PULSE_OPENMP AND OpenMP_CXX_FOUND)
    set(pulse_compiled_openmp OpenMP)
endif()

# pulse::compiled_pictures: the same for pulse::pictures and its parts encode and data. It brings the other two.
if(NOT TARGET pulse::pictures)
    return()
endif()
pulse_add_compiled_part(compiled_pictures PULSE_SEPARATE_PICTURES ""
                        ${pulse_encode_bodies} ${pulse_data_bodies} ${pulse_pictures_bodies})
target_link_libraries(pulse_compiled_pictures PUBLIC pulse::compiled_host pulse::pictures)
