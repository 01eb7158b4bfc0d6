# muster_use_ccache(): compile through ccache where it is installed and no other launcher is chosen.
function(muster_use_ccache)
  find_program(MUSTER_CCACHE ccache)
  mark_as_advanced(MUSTER_CCACHE)
  if(MUSTER_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Without these a unit that uses a precompiled header is never found in the cache.
    set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${MUSTER_CCACHE}
      PARENT_SCOPE)
  endif()
endfunction()

# muster_develop(target): the project's own warnings and sanitizers; never exported.
function(muster_develop target)
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE
      -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast
      -Wnon-virtual-dtor $<$<BOOL:${MUSTER_WERROR}>:-Werror>)
  endif()
  if(MUSTER_SANITIZE)
    # GCC's own words: with a sanitizer -Wmaybe-uninitialized is often wrong (in <regex>, here).
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized
      -fsanitize=${MUSTER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC $<BUILD_INTERFACE:-fsanitize=${MUSTER_SANITIZE}>)
  endif()
endfunction()

# muster_library(target): what our libraries have in common.
function(muster_library target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  # Sources include what is private to muster from the top of src: "process/fd.hpp".
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON
    VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
  muster_develop(${target})
endfunction()

# muster_program(target): a program of ours: test, example, benchmark, command.
function(muster_program target)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  muster_develop(${target})
endfunction()

# muster_torch_program(target): such a program with libtorch. They all share one precompiled
# <torch/torch.h>: it takes 40 s and 2 GB to make, and a unit goes from 23 s and 1.5 GB to 9 s and
# 1.3 GB, of which 0.7 are shared.
function(muster_torch_program target)
  if(NOT TARGET muster_torch_pch)
    file(WRITE ${PROJECT_BINARY_DIR}/torch_pch.cpp "")
    add_library(muster_torch_pch OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/torch_pch.cpp)
    target_link_libraries(muster_torch_pch PRIVATE muster::muster)
    target_precompile_headers(muster_torch_pch PRIVATE <torch/torch.h>)
    muster_program(muster_torch_pch)
  endif()
  target_link_libraries(${target} PRIVATE muster::muster)
  target_precompile_headers(${target} REUSE_FROM muster_torch_pch)
  muster_program(${target})
endfunction()
