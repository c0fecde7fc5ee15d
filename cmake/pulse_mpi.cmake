# pulse_mpi_command(<variable> <ranks>): the command line, without the program, that starts MPI ranks on this machine;
#     empty without mpirun.
# pulse_add_mpi_test(<name> RANKS <n> COMMAND <program> [arguments...] [LABELS <labels>] [TIMEOUT <s>])
#
# Runs the command as n processes, with the label mpi; without mpirun the test is reported as skipped. Open MPI's
# processes may outnumber the cores, yield while they wait, run as root, and copy through shared memory, which also
# works if a process must not read another's memory.
include_guard()

set(pulse_mpirun_flags)
# The command of such a test without mpirun. It must not contain a semicolon, which would end an argument.
set(pulse_mpi_skip sh -c "echo 'pulse: skipped: no mpirun' && exit 77")
if(MPIEXEC_EXECUTABLE)
    execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE pulse_mpirun_version ERROR_QUIET)
    if(pulse_mpirun_version MATCHES "Open MPI|OpenRTE")
        set(pulse_mpirun_flags --allow-run-as-root --oversubscribe --bind-to none --mca btl self,vader,tcp
            --mca btl_vader_single_copy_mechanism none --mca mpi_yield_when_idle 1)
    endif()
else()
    message(STATUS "pulse: the tests of many processes are skipped: mpirun not found")
endif()

function(pulse_mpi_command variable ranks)
    set(command)
    if(MPIEXEC_EXECUTABLE)
        set(command ${MPIEXEC_EXECUTABLE} ${pulse_mpirun_flags} ${MPIEXEC_NUMPROC_FLAG} ${ranks})
    endif()
    set(${variable} ${command} PARENT_SCOPE)
endfunction()

function(pulse_add_mpi_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "RANKS;TIMEOUT" "COMMAND;LABELS")
    if(NOT arg_RANKS OR NOT arg_COMMAND OR arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR
                "pulse_add_mpi_test(${name}): RANKS and COMMAND are needed, '${arg_UNPARSED_ARGUMENTS}' is not known")
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 300)
    endif()
    list(POP_FRONT arg_COMMAND program)
    if(TARGET ${program})
        set(program $<TARGET_FILE:${program}>)
    endif()
    pulse_mpi_command(start ${arg_RANKS})
    if(NOT start)
        set(start ${pulse_mpi_skip})
    endif()
    add_test(NAME ${name} COMMAND ${start} ${program} ${arg_COMMAND})
    set_tests_properties(${name} PROPERTIES LABELS "mpi;${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS 2
                         SKIP_RETURN_CODE 77)
endfunction()
