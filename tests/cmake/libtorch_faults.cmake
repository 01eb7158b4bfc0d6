# Each fault of a libtorch is one sentence that says what is wrong, where, and the way out. The
# libtorchs here are fakes: the few files that the module looks at.
#   cmake -DCXX= -DMODULE= -DSCRATCH= -P libtorch_faults.cmake
file(REMOVE_RECURSE ${SCRATCH})
file(REAL_PATH ${SCRATCH} SCRATCH)
set(ENV{VIRTUAL_ENV} "")
set(ENV{CONDA_PREFIX} "")
set(ENV{CMAKE_PREFIX_PATH} "")
set(ENV{LD_LIBRARY_PATH} "")
set(MUSTER_PYTHON ${CMAKE_COMMAND} CACHE FILEPATH "a python that has no torch")
set(MUSTER_LIBTORCH_SYSTEM_ROOTS ${SCRATCH}/usr)
set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
include(${MODULE})

# The module makes its target by these; a script has no targets.
function(_muster_libtorch_target)
endfunction()

function(shared_library file)
  cmake_path(GET file PARENT_PATH dir)
  cmake_path(GET file FILENAME name)
  file(MAKE_DIRECTORY ${dir})
  execute_process(COMMAND ${CXX} -shared -nostdlib -o ${file} -Wl,-soname,${name} -x c++ /dev/null
      -Wl,--no-as-needed -x none ${ARGN}
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(fake_libtorch root version abi)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "LIB" "NEEDS")
  if(NOT arg_LIB)
    set(arg_LIB lib)
  endif()
  string(REPLACE "." ";" parts ${version})
  list(GET parts 0 major)
  list(GET parts 1 minor)
  file(WRITE ${root}/include/torch/csrc/api/include/torch/version.h
    "#define TORCH_VERSION_MAJOR ${major}\n#define TORCH_VERSION_MINOR ${minor}\n#define TORCH_VERSION_PATCH 0\n")
  set(string_old Ss)
  set(string_new NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE)
  file(WRITE ${root}/${arg_LIB}/libc10.so "_ZN3c105ErrorC1ENS_14SourceLocationE${string_${abi}}")
  shared_library(${root}/${arg_LIB}/libtorch_cpu.so ${arg_NEEDS})
endfunction()

function(expect what)
  muster_find_libtorch(error)
  set(rest "${error}")
  foreach(part IN LISTS ARGN)
    string(FIND "${rest}" "${part}" at)
    if(at EQUAL -1)
      message(SEND_ERROR "${what}: expected \"${part}\" in: ${error}")
      return()
    endif()
  endforeach()
  if(NOT ARGN AND error)
    message(SEND_ERROR "${what}: ${error}")
  elseif(error MATCHES "\n")
    message(SEND_ERROR "${what}: more than one line: ${error}")
  endif()
  if(NOT ARGN AND NOT MUSTER_LIBTORCH_ROOT STREQUAL expected_root)
    message(SEND_ERROR "${what}: found ${MUSTER_LIBTORCH_ROOT}, not ${expected_root}")
  endif()
  if(error)
    message(STATUS "${what}: ${error}")
  endif()
endfunction()

# Missing.
set(CMAKE_PREFIX_PATH ${SCRATCH}/prefix)
expect("nothing anywhere" "no libtorch found" "libtorch_cpu.so" "CMAKE_PREFIX_PATH (${SCRATCH}/prefix)"
  "VIRTUAL_ENV (unset)" "${SCRATCH}/usr" "-DMUSTER_TORCH_DIR=DIR" "-DMUSTER_WITH_TORCH=OFF")
set(MUSTER_TORCH_DIR ${SCRATCH}/empty)
expect("a wrong MUSTER_TORCH_DIR" "no libtorch found" "MUSTER_TORCH_DIR=${SCRATCH}/empty")
unset(MUSTER_TORCH_DIR)

# Too old, alone and with a better one behind it.
fake_libtorch(${SCRATCH}/usr 1.13.1 new LIB lib/x86_64-linux-gnu)
expect("Debian 12's own" "needs libtorch 2.6 or newer" "${SCRATCH}/usr is 1.13.0" "-DMUSTER_TORCH_DIR=DIR")
fake_libtorch(${SCRATCH}/prefix 2.5.0 new)
expect("2.5 on CMAKE_PREFIX_PATH" "needs libtorch 2.6 or newer" "${SCRATCH}/prefix is 2.5.0")
fake_libtorch(${SCRATCH}/usr 2.6.0 new LIB lib/x86_64-linux-gnu)
set(expected_root ${SCRATCH}/usr)
expect("an old one is passed over")

# The other ABI, both ways.
set(MUSTER_TORCH_DIR ${SCRATCH}/old_abi)
fake_libtorch(${SCRATCH}/old_abi 2.6.0 old)
expect("old ABI" "${SCRATCH}/old_abi was built with _GLIBCXX_USE_CXX11_ABI=0" "compiled with 1" "cxx11-abi"
  "-DMUSTER_TORCH_DIR=DIR")
set(CMAKE_CXX_FLAGS -D_GLIBCXX_USE_CXX11_ABI=0)
set(expected_root ${SCRATCH}/old_abi)
expect("old ABI wanted")
fake_libtorch(${SCRATCH}/old_abi 2.6.0 new)
expect("new ABI, old wanted" "_GLIBCXX_USE_CXX11_ABI=1" "compiled with 0")
unset(CMAKE_CXX_FLAGS)

# A CUDA wheel without, and with, the libraries that it needs to be loaded.
set(site ${SCRATCH}/venv/lib/python3.11/site-packages)
set(MUSTER_TORCH_DIR ${SCRATCH}/venv)
shared_library(${SCRATCH}/parts/libcudart.so.13)
shared_library(${SCRATCH}/parts/libcupti.so.13)
fake_libtorch(${site}/torch 2.15.0 new
  NEEDS ${SCRATCH}/parts/libcudart.so.13 ${SCRATCH}/parts/libcupti.so.13)
shared_library(${site}/nvidia/cu13/lib/libcudart.so.13)
expect("no cupti" "${site}/torch is a CUDA build and needs libcupti.so.13 to be loaded"
  "${site}/nvidia/*/lib" "nvidia-cuda-cupti")
shared_library(${site}/nvidia/cu13/lib/libcupti.so.13)
set(expected_root ${site}/torch)
expect("a complete wheel")

# The layouts that people have.
foreach(dir IN ITEMS ${SCRATCH}/venv ${site} ${site}/torch ${site}/torch/share/cmake)
  set(MUSTER_TORCH_DIR ${dir})
  expect("named by ${dir}")
endforeach()
unset(MUSTER_TORCH_DIR)
unset(CMAKE_PREFIX_PATH)
set(ENV{VIRTUAL_ENV} ${SCRATCH}/venv)
expect("an active environment")
set(ENV{VIRTUAL_ENV} "")
file(WRITE ${SCRATCH}/python "#!/bin/sh\necho '${site}/torch'\n")
file(CHMOD ${SCRATCH}/python PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(MUSTER_PYTHON ${SCRATCH}/python CACHE FILEPATH "a python with torch" FORCE)
expect("python3's torch")

# A package built with another libtorch: the right one is taken, or the wrong one is named.
set(expected_root ${SCRATCH}/usr)
muster_find_libtorch(error BUILT_WITH 2.6.1)
if(error OR NOT MUSTER_LIBTORCH_ROOT STREQUAL expected_root)
  message(SEND_ERROR "2.6 for a package built with 2.6: ${error} ${MUSTER_LIBTORCH_ROOT}")
endif()
muster_find_libtorch(error BUILT_WITH 2.8.0)
if(NOT error MATCHES "built with libtorch 2.8.0, but the one in .* is 2.15.0: name a libtorch 2.8 ")
  message(SEND_ERROR "none for a package built with 2.8: ${error}")
endif()
