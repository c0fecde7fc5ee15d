# Shows that check_includes.cmake refuses what it must: each small tree has one fault.
cmake_minimum_required(VERSION 3.25)

# expect(<name> <text of the failure, or empty> <header> <content> [<header> <content>...]); every header is in
# pulse::pulse, except those of io and cuda, bodies, and those named json.
function(expect name text)
    set(root ${SCRATCH}/${name})
    file(REMOVE_RECURSE ${root})
    set(headers)
    set(rest ${ARGN})
    while(rest)
        list(POP_FRONT rest header content)
        file(WRITE ${root}/pulse/${header} "#pragma once\n${content}\n")
        if(NOT header MATCHES "^io/|^cuda/|/json\\.hpp$|\\.ipp$")
            list(APPEND headers ${header})
        endif()
    endwhile()
    file(WRITE ${root}/parts.cmake "set(HEADERS ${headers})\n")
    execute_process(
        COMMAND ${CMAKE_COMMAND} -D ROOT=${root} -D PARTS=${root}/parts.cmake
            -P ${CMAKE_CURRENT_LIST_DIR}/check_includes.cmake
        RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    string(REGEX REPLACE "[ \n]+" " " output "${output}")
    string(FIND "${output}" "${text}" at)
    if(text STREQUAL "" AND NOT result EQUAL 0)
        message(SEND_ERROR "${name}: refused, though nothing is wrong:\n${output}")
    elseif(NOT text STREQUAL "" AND result EQUAL 0)
        message(SEND_ERROR "${name}: accepted")
    elseif(NOT text STREQUAL "" AND at LESS 0)
        message(SEND_ERROR "${name}: refused for another reason than '${text}':\n${output}")
    endif()
endfunction()

set(core "core/label.hpp" "#include <string>")
expect(good ""
    ${core} "model/graph.hpp" "#include <pulse/core/label.hpp>"
    "profile/analytic.hpp" "#include <pulse/model/graph.hpp>"
    "pulse.hpp" "#include <pulse/profile/analytic.hpp>")
expect(against_the_flow "core/label.hpp -> model/graph.hpp: against the flow"
    "model/graph.hpp" "#include <cstdint>" "core/label.hpp" "#include <pulse/model/graph.hpp>"
    "pulse.hpp" "#include <pulse/core/label.hpp>")
expect(beside_the_result_header "schedule/validate.hpp -> partition/skip_aware.hpp: against the flow"
    "partition/skip_aware.hpp" "#include <vector>" "schedule/validate.hpp" "#include <pulse/partition/skip_aware.hpp>"
    "pulse.hpp" "#include <pulse/schedule/validate.hpp>")
expect(cuda_is_a_leaf "runtime/executor.hpp -> cuda/stream.cuh: against the flow"
    "cuda/stream.cuh" "#include <cuda_runtime.h>" "runtime/executor.hpp" "#include <pulse/cuda/stream.cuh>"
    "pulse.hpp" "#include <pulse/runtime/executor.hpp>")
expect(cuda_obeys_the_flow "cuda/kernels/adamw.cuh -> zoo/sdxl.hpp: against the flow"
    "zoo/sdxl.hpp" "#include <vector>" "cuda/kernels/adamw.cuh" "#include <pulse/zoo/sdxl.hpp>"
    "pulse.hpp" "#include <pulse/zoo/sdxl.hpp>")
expect(in_a_subfolder "schedule/baselines/gpipe.hpp -> plan/plan.hpp: against the flow"
    "plan/plan.hpp" "#include <vector>" "schedule/baselines/gpipe.hpp" "#include <pulse/plan/plan.hpp>"
    "pulse.hpp" "#include <pulse/schedule/baselines/gpipe.hpp>")
expect(allowed_to_one_header ""
    "io/atomic_file.hpp" "#include <string>" "io/json_field.hpp" "#include <string>"
    "plan/json.hpp" "#include <pulse/io/atomic_file.hpp>\n#include <pulse/io/json_field.hpp>"
    "profile/json.hpp" "#include <pulse/io/atomic_file.hpp>" "pulse.hpp" "#include <string>")
expect(not_to_its_neighbour "plan/print.hpp -> io/atomic_file.hpp: against the flow"
    "io/atomic_file.hpp" "#include <string>" "plan/print.hpp" "#include <pulse/io/atomic_file.hpp>"
    "pulse.hpp" "#include <pulse/plan/print.hpp>")
expect(files_know_no_plan "io/atomic_file.hpp -> plan/plan.hpp: against the flow"
    "plan/plan.hpp" "#include <vector>" "io/atomic_file.hpp" "#include <pulse/plan/plan.hpp>"
    "pulse.hpp" "#include <pulse/plan/plan.hpp>")
expect(spaced_include "core/label.hpp -> model/graph.hpp: against the flow"
    "model/graph.hpp" "#include <cstdint>" "core/label.hpp" "  #  include <pulse/model/graph.hpp>"
    "pulse.hpp" "#include <pulse/core/label.hpp>")
expect(unknown_room "flow.cmake has no line for the room utils"
    "utils/all.hpp" "#include <vector>" "pulse.hpp" "#include <pulse/utils/all.hpp>")
expect(missing_header "core/label.hpp -> core/gone.hpp: there is no such header"
    "core/label.hpp" "#include <pulse/core/gone.hpp>" "pulse.hpp" "#include <pulse/core/label.hpp>")
expect(quotes "includes are written <pulse/room/file.hpp>"
    "core/label.hpp" "#include \"error.hpp\"" "pulse.hpp" "#include <pulse/core/label.hpp>")
expect(third_party "model/graph.hpp is in pulse::pulse but reaches <nlohmann/json.hpp> in core/label.hpp"
    "core/label.hpp" "#include <nlohmann/json.hpp>" "model/graph.hpp" "#include <pulse/core/label.hpp>"
    "pulse.hpp" "#include <pulse/model/graph.hpp>")
expect(other_part "train/dataset.hpp is in pulse::pulse but reaches io/idx.hpp, which is not"
    "io/idx.hpp" "#include <vector>" "train/dataset.hpp" "#include <pulse/io/idx.hpp>"
    "pulse.hpp" "#include <pulse/train/dataset.hpp>")
expect(zlib "reaches <zlib.h> in core/label.hpp"
    "core/label.hpp" "#include <zlib.h>" "pulse.hpp" "#include <pulse/core/label.hpp>")
expect(behind_no_door "no door reaches core/label.hpp"
    ${core} "pulse.hpp" "#include <string>")
expect(heavy_beside_the_doors "" "zoo/sdxl.hpp" "#include <string>" "pulse.hpp" "#include <string>")
expect(heavy_behind_a_door "a door reaches zoo/sdxl.hpp, which flow.cmake keeps beside it"
    "zoo/sdxl.hpp" "#include <string>" "pulse.hpp" "#include <pulse/zoo/sdxl.hpp>")
expect(behind_the_planner "" ${core} "pulse.hpp" "#include <string>" "planner.hpp" "#include <pulse/core/label.hpp>")
expect(bodies "" "core/label.hpp" "#include <pulse/core/label.ipp>" "core/label.ipp" "#include <pulse/core/label.hpp>"
    "pulse.hpp" "#include <pulse/core/label.hpp>")
expect(bodies_of_another "core/ids.hpp -> core/label.ipp: bodies are included by their header alone"
    "core/label.hpp" "#include <pulse/core/label.ipp>" "core/label.ipp" "#include <pulse/core/label.hpp>"
    "core/ids.hpp" "#include <pulse/core/label.ipp>" "pulse.hpp" "#include <pulse/core/ids.hpp>")
expect(bodies_against_the_flow "core/label.ipp -> model/graph.hpp: against the flow"
    "model/graph.hpp" "#include <cstdint>" "core/label.hpp" "#include <pulse/core/label.ipp>"
    "core/label.ipp" "#include <pulse/model/graph.hpp>" "pulse.hpp" "#include <pulse/core/label.hpp>")
expect(bodies_without_a_header "core/label.ipp: there is no core/label.hpp"
    "core/label.ipp" "#include <vector>" "pulse.hpp" "#include <string>")
