# Finds a libtorch and makes the target muster::libtorch of it. Installed beside muster-config.cmake.
#
# libtorch's own TorchConfig.cmake is not used: that of a CUDA build demands a CUDA toolkit that
# knows the compiler, also from projects that run on CPUs only.
#
#   muster_find_libtorch(<error> [NEAR <dir>...] [BUILT_WITH <version>])
#
# looks, in this order, for
#   1. a target `torch` that the project made,
#   2. MUSTER_TORCH_DIR; when it is set, nothing below is tried,
#   3. the NEAR folders (bootstrap.sh's .deps, or the libtorch that muster was built with),
#   4. CMAKE_PREFIX_PATH: an unpacked zip, the torch folder of a wheel, a Python environment,
#   5. the Python environments $VIRTUAL_ENV, $CONDA_PREFIX and that of python3,
#   6. the system (Debian's libtorch-dev).
# <error> is empty on success, else one sentence: what is wrong, where, and the way out.
# On success these are set in the caller's scope: MUSTER_LIBTORCH_ROOT, MUSTER_LIBTORCH_VERSION.

set(MUSTER_LIBTORCH_MINIMUM 2.6)

set(_muster_libtorch_way_out
  "take the torch wheel (pip install torch) or the zip and name its folder with -DMUSTER_TORCH_DIR=DIR, or leave libtorch out with -DMUSTER_WITH_TORCH=OFF")

# The include folder of a libtorch, and its version, read from torch/version.h.
function(_muster_libtorch_version include result)
  set(${result} "" PARENT_SCOPE)
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h
                          torch/version.h)
    if(NOT EXISTS ${include}/${header})
      continue()
    endif()
    file(STRINGS ${include}/${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX MATCHALL "TORCH_VERSION_[A-Z]+ +[0-9]+" lines "${lines}")
    list(TRANSFORM lines REPLACE ".* " "")
    list(LENGTH lines parts)
    if(parts EQUAL 3)
      list(JOIN lines "." version)
      set(${result} ${version} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# The folder with libtorch_cpu.so below a root, or nothing.
function(_muster_libtorch_lib root result)
  set(${result} "" PARENT_SCOPE)
  foreach(dir IN ITEMS lib lib/${CMAKE_LIBRARY_ARCHITECTURE} lib64)
    if(EXISTS ${root}/${dir}/libtorch_cpu.so)
      set(${result} ${root}/${dir} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# What a folder that a user names may hold: libtorch itself, site-packages, a Python environment,
# or the share/cmake folder that torch.utils.cmake_prefix_path prints.
function(_muster_libtorch_roots dir result)
  string(REGEX REPLACE "/share/cmake(/Torch)?/?$" "" dir "${dir}")
  file(GLOB environments LIST_DIRECTORIES true
    ${dir}/lib/python3*/site-packages/torch ${dir}/lib/python3*/dist-packages/torch)
  set(${result} ${dir} ${dir}/torch ${dir}/libtorch ${environments} PARENT_SCOPE)
endfunction()

# Asks python3 where its torch is, without importing it (that takes seconds).
function(_muster_libtorch_of_python result)
  set(${result} "" PARENT_SCOPE)
  find_program(MUSTER_PYTHON NAMES python3 python)
  mark_as_advanced(MUSTER_PYTHON)
  if(NOT MUSTER_PYTHON)
    return()
  endif()
  execute_process(
    COMMAND ${MUSTER_PYTHON} -c
      "import importlib.util as u; s = u.find_spec('torch'); print(*(s.submodule_search_locations if s else []), sep=';')"
    OUTPUT_VARIABLE dirs OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0)
    set(${result} ${dirs} PARENT_SCOPE)
  endif()
endfunction()

# The folders to try, in order, and a short text of where they come from.
function(_muster_libtorch_candidates near candidates places)
  if(MUSTER_TORCH_DIR)
    _muster_libtorch_roots("${MUSTER_TORCH_DIR}" roots)
    set(${candidates} ${roots} PARENT_SCOPE)
    set(${places} "MUSTER_TORCH_DIR=${MUSTER_TORCH_DIR}" PARENT_SCOPE)
    return()
  endif()
  set(prefixes ${CMAKE_PREFIX_PATH} $ENV{CMAKE_PREFIX_PATH})
  string(REPLACE ":" ";" prefixes "${prefixes}")
  set(all ${near})
  foreach(dir IN LISTS prefixes ITEMS $ENV{VIRTUAL_ENV} $ENV{CONDA_PREFIX})
    _muster_libtorch_roots("${dir}" roots)
    list(APPEND all ${roots})
  endforeach()
  _muster_libtorch_of_python(python)
  if(DEFINED MUSTER_LIBTORCH_SYSTEM_ROOTS) # for tests
    set(system ${MUSTER_LIBTORCH_SYSTEM_ROOTS})
  else()
    set(system /usr/local /usr)
  endif()
  set(${candidates} ${all} ${python} ${system} PARENT_SCOPE)
  list(JOIN prefixes ", " prefixes)
  set(text ${near} "CMAKE_PREFIX_PATH (${prefixes})" "VIRTUAL_ENV ($ENV{VIRTUAL_ENV})"
    "CONDA_PREFIX ($ENV{CONDA_PREFIX})" "the packages of ${MUSTER_PYTHON}" ${system})
  list(JOIN text ", " text)
  string(REPLACE "()" "(unset)" text "${text}")
  set(${places} "${text}" PARENT_SCOPE)
endfunction()

# Whether libc10's functions take the old std::string (1), the new one (0), or it cannot be told ("").
function(_muster_libtorch_old_abi lib result)
  file(STRINGS ${lib}/libc10.so symbols REGEX "_ZN3c105ErrorC[12]ENS_14SourceLocation")
  if(symbols MATCHES "SourceLocationENSt7__cxx11")
    set(${result} 0 PARENT_SCOPE)
  elseif(symbols MATCHES "SourceLocationESs")
    set(${result} 1 PARENT_SCOPE)
  else()
    set(${result} "" PARENT_SCOPE)
  endif()
endfunction()

# The libraries of CUDA that libtorch_cpu.so needs to be loaded, as <found files> and <missing names>.
function(_muster_libtorch_cuda_parts root lib found missing)
  set(${found} "" PARENT_SCOPE)
  set(${missing} "" PARENT_SCOPE)
  find_program(MUSTER_READELF NAMES ${CMAKE_READELF} readelf)
  mark_as_advanced(MUSTER_READELF)
  if(NOT MUSTER_READELF)
    return()
  endif()
  execute_process(COMMAND ${MUSTER_READELF} -d ${lib}/libtorch_cpu.so
    OUTPUT_VARIABLE dynamic ERROR_QUIET)
  string(REGEX MATCHALL "\\[lib(cudart|cupti|nvToolsExt|nvrtc|nccl|cublas|cufft|cudnn)[^]]*\\]"
    names "${dynamic}")
  if(NOT names)
    return()
  endif()
  # A wheel keeps them in packages beside it, a zip beside libtorch_cpu.so, others in the system.
  cmake_path(GET root PARENT_PATH site)
  file(GLOB dirs LIST_DIRECTORIES true ${site}/nvidia/*/lib)
  string(REPLACE ":" ";" library_path "$ENV{LD_LIBRARY_PATH}")
  if(NOT DEFINED MUSTER_LIBTORCH_SYSTEM_ROOTS)
    execute_process(COMMAND ldconfig -p OUTPUT_VARIABLE cache ERROR_QUIET)
  endif()
  set(files "")
  set(absent "")
  foreach(name IN LISTS names)
    string(REGEX REPLACE "[][]" "" name "${name}")
    unset(file)
    foreach(dir IN LISTS dirs ITEMS ${lib} ${library_path})
      if(EXISTS ${dir}/${name})
        set(file ${dir}/${name})
        break()
      endif()
    endforeach()
    if(NOT file AND "${cache}" MATCHES "${name} [^\n]*=> ([^\n]+)")
      set(file ${CMAKE_MATCH_1})
    endif()
    if(file)
      list(APPEND files ${file})
    else()
      list(APPEND absent ${name})
    endif()
  endforeach()
  set(${found} ${files} PARENT_SCOPE)
  set(${missing} ${absent} PARENT_SCOPE)
endfunction()

# One sentence if this libtorch cannot be used, else nothing.
function(_muster_libtorch_fault root lib version built_with result)
  set(${result} "" PARENT_SCOPE)
  if(version VERSION_LESS MUSTER_LIBTORCH_MINIMUM)
    string(CONCAT text "muster needs libtorch ${MUSTER_LIBTORCH_MINIMUM} or newer, but the one in "
      "${root} is ${version}: ${_muster_libtorch_way_out}.")
    set(${result} "${text}" PARENT_SCOPE)
    return()
  endif()
  if(built_with)
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" ours "${built_with}")
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" theirs "${version}")
    if(NOT ours VERSION_EQUAL theirs)
      string(CONCAT text "this muster was built with libtorch ${built_with}, but the one in ${root} "
        "is ${version}: name a libtorch ${ours} with -DMUSTER_TORCH_DIR=DIR, or build muster again "
        "with this one.")
      set(${result} "${text}" PARENT_SCOPE)
      return()
    endif()
  endif()
  set(wanted_old 0)
  if(CMAKE_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    set(wanted_old 1)
  endif()
  _muster_libtorch_old_abi(${lib} old)
  if(NOT old STREQUAL "" AND NOT old EQUAL wanted_old)
    math(EXPR theirs "1 - ${old}")
    math(EXPR ours "1 - ${wanted_old}")
    set(example "")
    if(NOT wanted_old)
      set(example " (a zip named cxx11-abi, a torch wheel from 2.7 on)")
    endif()
    string(CONCAT text "libtorch ${version} in ${root} was built with _GLIBCXX_USE_CXX11_ABI=${theirs}, "
      "but this project is compiled with ${ours}, so the two cannot be linked: take a libtorch built with "
      "${ours}${example} and name its folder with -DMUSTER_TORCH_DIR=DIR.")
    set(${result} "${text}" PARENT_SCOPE)
    return()
  endif()
  _muster_libtorch_cuda_parts(${root} ${lib} found missing)
  if(missing)
    list(JOIN missing " and " missing)
    cmake_path(GET root PARENT_PATH site)
    string(CONCAT text "libtorch ${version} in ${root} is a CUDA build and needs ${missing} to be loaded "
      "(also on CPUs), looked for in ${site}/nvidia/*/lib, ${lib}, LD_LIBRARY_PATH and the system's "
      "libraries: install the nvidia-cuda-runtime and nvidia-cuda-cupti wheels beside it, or take a "
      "CPU build and name its folder with -DMUSTER_TORCH_DIR=DIR.")
    set(${result} "${text}" PARENT_SCOPE)
  endif()
endfunction()

# muster::libtorch, from the files of a libtorch.
function(_muster_libtorch_target root lib)
  add_library(muster::libtorch INTERFACE IMPORTED GLOBAL)
  set(include ${root}/include)
  target_include_directories(muster::libtorch SYSTEM INTERFACE
    ${include} ${include}/torch/csrc/api/include)
  if(EXISTS ${include}/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp)
    target_compile_definitions(muster::libtorch INTERFACE USE_C10D_GLOO)
  endif()
  # libtorch's registrations run when it is loaded, so it stays linked where no symbol of it is used.
  target_link_libraries(muster::libtorch INTERFACE
    -Wl,--push-state,--no-as-needed ${lib}/libtorch_cpu.so ${lib}/libc10.so -Wl,--pop-state)
  # The linker follows libtorch_cpu's own needs only where its RPATH leads.
  _muster_libtorch_cuda_parts(${root} ${lib} parts missing)
  foreach(part IN LISTS parts)
    cmake_path(GET part PARENT_PATH dir)
    target_link_options(muster::libtorch INTERFACE -Wl,-rpath-link,${dir})
  endforeach()
endfunction()

# muster::libtorch, from a target `torch` that the project made.
function(_muster_libtorch_wrap version)
  add_library(muster::libtorch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(muster::libtorch INTERFACE torch)
  target_compile_definitions(muster::libtorch INTERFACE USE_C10D_GLOO)
  get_target_property(dirs torch INTERFACE_INCLUDE_DIRECTORIES)
  set(${version} unknown PARENT_SCOPE)
  foreach(dir IN LISTS dirs)
    _muster_libtorch_version("${dir}" found)
    if(found)
      set(${version} ${found} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

function(muster_find_libtorch error)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "BUILT_WITH" "NEAR")
  set(${error} "" PARENT_SCOPE)
  if(TARGET muster::libtorch)
    return()
  endif()
  if(TARGET torch)
    _muster_libtorch_wrap(version)
    set(MUSTER_LIBTORCH_VERSION ${version} PARENT_SCOPE)
    set(MUSTER_LIBTORCH_ROOT "" PARENT_SCOPE)
    message(STATUS "Using the project's own target torch (${version})")
    return()
  endif()
  _muster_libtorch_candidates("${arg_NEAR}" candidates places)
  set(faults "")
  foreach(root IN LISTS candidates)
    _muster_libtorch_lib("${root}" lib)
    _muster_libtorch_version("${root}/include" version)
    if(NOT lib OR NOT version)
      continue()
    endif()
    file(REAL_PATH ${root} root)
    _muster_libtorch_lib(${root} lib)
    _muster_libtorch_fault(${root} ${lib} ${version} "${arg_BUILT_WITH}" fault)
    if(fault)
      list(APPEND faults "${fault}")
      continue()
    endif()
    _muster_libtorch_target(${root} ${lib})
    set(MUSTER_LIBTORCH_ROOT ${root} PARENT_SCOPE)
    set(MUSTER_LIBTORCH_VERSION ${version} PARENT_SCOPE)
    foreach(fault IN LISTS faults)
      message(STATUS "Passed over: ${fault}")
    endforeach()
    message(STATUS "Found libtorch ${version} in ${root}")
    return()
  endforeach()
  if(faults)
    list(GET faults 0 fault)
    set(${error} "${fault}" PARENT_SCOPE)
  else()
    string(CONCAT text "no libtorch found (lib/libtorch_cpu.so and include/torch) in ${places}: "
      "${_muster_libtorch_way_out}.")
    set(${error} "${text}" PARENT_SCOPE)
  endif()
endfunction()
