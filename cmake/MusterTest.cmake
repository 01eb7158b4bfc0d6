# muster_test(<folder/name> [TORCH] [RANKS] [LABELS <label>...] [TIMEOUT <s>] [SOURCES <file>...] [LINK <lib>...]
#             [PROPERTIES <property> <value>...])
#
# The test program of tests/<folder>/<name>_test.cpp. It may include the sources' private headers.
#   TORCH   links muster::muster and is one test, since each start costs a second; without it each
#           TEST_CASE is a test of its own
#   RANKS   its main calls muster::init first, so that tests can start ranks
#   LABELS  style.md's layers; the default is torch or pure
function(muster_test path)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TORCH;RANKS" "TIMEOUT" "LABELS;SOURCES;LINK;PROPERTIES")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "muster_test(${path}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  if(arg_TORCH AND NOT MUSTER_WITH_TORCH)
    return()
  endif()
  string(REPLACE "/" "_" target ${path}_test)
  add_executable(${target} ${path}_test.cpp ${arg_SOURCES})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  set(main muster_test_main)
  if(arg_RANKS)
    set(main muster_test_ranks_main)
  endif()
  target_link_libraries(${target} PRIVATE ${main} ${arg_LINK})
  set(label pure)
  set(timeout 60)
  if(arg_TORCH)
    muster_torch_program(${target})
    set(label torch)
    set(timeout 120)
  else()
    target_link_libraries(${target} PRIVATE muster::launch
      fmt::fmt-header-only nlohmann_json::nlohmann_json)
    muster_program(${target})
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS ${label})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${timeout})
  endif()
  if(arg_TORCH)
    add_test(NAME ${path} COMMAND ${target})
    set_tests_properties(${path} PROPERTIES
      LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ${arg_PROPERTIES})
    return()
  endif()
  # Catch2 v2 passes where no TEST_CASE has the name that is asked for, such as one with a semicolon.
  set(extra "")
  if(Catch2_VERSION VERSION_LESS 3)
    set(extra EXTRA_ARGS --warn NoTests)
  endif()
  catch_discover_tests(${target} TEST_PREFIX "${path}:" TEST_LIST ${target}_cases ${extra})
  # catch_discover_tests cannot pass on a list, such as two labels.
  file(CONFIGURE OUTPUT ${target}_properties.cmake @ONLY CONTENT [[
if(@target@_cases)
  set_tests_properties(${@target@_cases} PROPERTIES
    LABELS "@arg_LABELS@" TIMEOUT @arg_TIMEOUT@ @arg_PROPERTIES@)
endif()
]])
  set_property(DIRECTORY APPEND PROPERTY
    TEST_INCLUDE_FILES ${CMAKE_CURRENT_BINARY_DIR}/${target}_properties.cmake)
endfunction()

# muster_must_not_compile(<folder/name> <file> "<regex>" [TORCH]): compiling tests/<file> fails, and
# what the compiler says matches <regex>. With MUSTER_MUST_COMPILE defined the same file compiles,
# so that it does not fail for another reason: put the mistake under #ifndef MUSTER_MUST_COMPILE.
function(muster_must_not_compile path file regex)
  set(libraries muster_launch cereal::cereal)
  set(label pure)
  if(TORCH IN_LIST ARGN)
    if(NOT MUSTER_WITH_TORCH)
      return()
    endif()
    list(APPEND libraries muster::libtorch)
    set(label torch)
  endif()
  _muster_test_includes(includes ${libraries})
  add_test(NAME ${path} COMMAND ${CMAKE_COMMAND}
    -DCXX=${CMAKE_CXX_COMPILER} "-DINCLUDES=${includes}" -DFILE=${CMAKE_CURRENT_SOURCE_DIR}/${file}
    "-DREGEX=${regex}" -P ${PROJECT_SOURCE_DIR}/tests/cmake/must_not_compile.cmake)
  set_tests_properties(${path} PROPERTIES LABELS ${label} TIMEOUT 120)
endfunction()

# The include folders of targets, as a list that survives a command line (separated by |).
function(_muster_test_includes result)
  set(dirs "")
  foreach(target IN LISTS ARGN)
    list(APPEND dirs "$<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>")
  endforeach()
  set(${result} "$<JOIN:${dirs},|>" PARENT_SCOPE)
endfunction()
