# Runs the README's CUDA trainer; without a GPU it reports a skip, or fails if PULSE_REQUIRE_GPU is 1.
#   cmake -DPROGRAM=<cuda_trainer> -P run_cuda_trainer.cmake
execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(output MATCHES "there are 0 devices" AND NOT "$ENV{PULSE_REQUIRE_GPU}" STREQUAL "1")
    message("skipped: no GPU")
elseif(NOT result EQUAL 0 OR NOT output MATCHES "step 5  loss [0-9.]+  norm [0-9.]+\n")
    message(FATAL_ERROR "exit status ${result}:\n${output}")
endif()
