# sealift_add_model(<target> <package.pt2> SCRIPT <script.py> [ARGS ...] [DEPENDS ...] [PYTHON <interpreter>])
#
# Runs the script at build time as `<python> <script.py> <package.pt2> [ARGS ...]`; it must write the package to its first argument:
#
#   import sys, sealift
#   sealift.compile(MyModel(), sys.argv[1], args=(example,))
#
# The package is made again when the script or a file of DEPENDS changes, and lies in the current binary directory unless its path is
# absolute. `target` builds with all; its property SEALIFT_PACKAGE is the package's path. Let whatever reads the package depend on it:
# add_dependencies(app <target>).
function(sealift_add_model target package)
  cmake_parse_arguments(PARSE_ARGV 2 MODEL "" "SCRIPT;PYTHON" "ARGS;DEPENDS")
  if(MODEL_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "sealift_add_model(${target}): unknown arguments: ${MODEL_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT MODEL_SCRIPT)
    message(FATAL_ERROR "sealift_add_model(${target}): SCRIPT <script.py> is missing")
  endif()
  get_filename_component(script "${MODEL_SCRIPT}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_SOURCE_DIR}")
  if(NOT EXISTS "${script}")
    message(FATAL_ERROR "sealift_add_model(${target}): there is no script ${script}")
  endif()
  get_filename_component(output "${package}" ABSOLUTE BASE_DIR "${CMAKE_CURRENT_BINARY_DIR}")
  get_filename_component(folder "${output}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  set(python "${MODEL_PYTHON}")
  if(NOT python)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(python "${Python3_EXECUTABLE}")
  endif()
  # The script writes beside the package and the result is renamed: an interrupted build leaves no half package behind.
  get_filename_component(name "${output}" NAME)
  set(partial "${folder}/${name}.partial/${name}")
  add_custom_command(
    OUTPUT "${output}"
    COMMAND "${CMAKE_COMMAND}" -E make_directory "${folder}/${name}.partial"
    COMMAND "${python}" "${script}" "${partial}" ${MODEL_ARGS}
    COMMAND "${CMAKE_COMMAND}" -E rename "${partial}" "${output}"
    COMMAND "${CMAKE_COMMAND}" -E remove_directory "${folder}/${name}.partial"
    DEPENDS "${script}" ${MODEL_DEPENDS}
    WORKING_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}"
    COMMENT "Compiling the model package ${name}"
    VERBATIM)
  add_custom_target(${target} ALL DEPENDS "${output}")
  set_target_properties(${target} PROPERTIES SEALIFT_PACKAGE "${output}")
endfunction()
