# muster_develop(target): the project's own warnings and sanitizers; never exported.
function(muster_develop target)
  if(PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE
      -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wold-style-cast
      -Wnon-virtual-dtor $<$<BOOL:${MUSTER_WERROR}>:-Werror>)
  endif()
  if(MUSTER_SANITIZE)
    target_compile_options(${target} PRIVATE
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
