# CTest tests that run under streamcheck. Include it after include(CTest) or enable_testing().
#
#   streamcheck_add_test(NAME name COMMAND target-or-program [argument...]
#                        [FAIL_ON error|warning|never] [SUPPRESSIONS file] [BASELINE file]
#                        [JSON file] [SARIF file] [JUNIT file] [HTML file]
#                        [REQUIRE_CUDA on|off] [WORKING_DIRECTORY folder])
#
# adds a test that fails if the program does, if a finding fails the gate (exit code 66), or if
# no CUDA call was seen (67). It bears the label `streamcheck`. Relative files to read are taken
# from the source folder, files to write from the build folder.
#
#   streamcheck_launch(target [option...])
#
# puts `streamcheck run` before each test of an executable, those that gtest_discover_tests
# makes of it included; the options are those of `streamcheck run`. gtest_discover_tests lists
# the tests in the same way, which makes no CUDA call: give it `--require-cuda=off`. Needs
# CMake 3.29.
#
# The command is looked for on the PATH; -DSTREAMCHECK_EXECUTABLE=/path/streamcheck names it.

include_guard(GLOBAL)

find_program(STREAMCHECK_EXECUTABLE streamcheck DOC "The streamcheck command")

function(_streamcheck_needed)
  if(NOT STREAMCHECK_EXECUTABLE)
    message(FATAL_ERROR "streamcheck is not on the PATH; say where it is with "
                        "-DSTREAMCHECK_EXECUTABLE=/path/to/streamcheck")
  endif()
endfunction()

function(streamcheck_add_test)
  set(read SUPPRESSIONS BASELINE)
  set(written JSON SARIF JUNIT HTML)
  set(said FAIL_ON REQUIRE_CUDA)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;WORKING_DIRECTORY;${read};${written};${said}"
                        "COMMAND")
  if(arg_UNPARSED_ARGUMENTS OR NOT DEFINED arg_NAME OR NOT DEFINED arg_COMMAND)
    message(FATAL_ERROR "streamcheck_add_test takes NAME, COMMAND and their like; "
                        "not understood: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  _streamcheck_needed()

  set(options "")
  foreach(name IN LISTS said read written)
    if(NOT DEFINED arg_${name})
      continue()
    endif()
    set(value "${arg_${name}}")
    if(name IN_LIST read)
      get_filename_component(value "${value}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
    elseif(name IN_LIST written)
      get_filename_component(value "${value}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
    endif()
    string(TOLOWER "${name}" option)
    string(REPLACE "_" "-" option "${option}")
    list(APPEND options "--${option}=${value}")
  endforeach()

  list(POP_FRONT arg_COMMAND program)
  if(TARGET "${program}")
    set(program "$<TARGET_FILE:${program}>")
  endif()
  set(folder "")
  if(DEFINED arg_WORKING_DIRECTORY)
    set(folder WORKING_DIRECTORY "${arg_WORKING_DIRECTORY}")
  endif()
  add_test(NAME "${arg_NAME}"
           COMMAND "${STREAMCHECK_EXECUTABLE}" run ${options} -- "${program}" ${arg_COMMAND}
           ${folder})
  set_property(TEST "${arg_NAME}" APPEND PROPERTY LABELS streamcheck)
endfunction()

function(streamcheck_launch target)
  if(CMAKE_VERSION VERSION_LESS 3.29)
    message(FATAL_ERROR "streamcheck_launch needs CMake 3.29, this is ${CMAKE_VERSION}")
  endif()
  _streamcheck_needed()
  set_property(TARGET "${target}"
               PROPERTY TEST_LAUNCHER "${STREAMCHECK_EXECUTABLE}" run ${ARGN} --)
endfunction()
