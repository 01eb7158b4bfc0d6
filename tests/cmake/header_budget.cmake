# What headers cost their users, in preprocessed lines; blank lines and the preprocessor's own line
# markers do not count.
#   cmake -DCXX= -DINCLUDES=a|b -DHEADERS=x|y -DLIMIT=80000 -P header_budget.cmake
# each header alone: at most LIMIT lines, and nothing of torch, fmt or CLI11;
#   cmake … -DHEADERS=x -DOVER=torch/torch.h -DPERCENT=5 -P header_budget.cmake
# each header: at most PERCENT more than OVER alone.
string(REPLACE "|" ";" INCLUDES "${INCLUDES}")
string(REPLACE "|" ";" HEADERS "${HEADERS}")
list(FILTER INCLUDES EXCLUDE REGEX "^(/usr/include)?$")
list(TRANSFORM INCLUDES PREPEND -I)
set(forbidden "/(torch/torch|torch/csrc/[^\"]*|ATen/[^\"]*|c10/[^\"]*|fmt/[a-z]+|CLI/[A-Za-z]+)\\.(h|hpp)\"")

function(preprocess result)
  set(unit "")
  foreach(header IN LISTS ARGN)
    string(APPEND unit "#include <${header}>\n")
  endforeach()
  string(RANDOM LENGTH 12 name)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/header_budget_${name})
  file(WRITE ${file}.cpp "${unit}")
  execute_process(COMMAND ${CXX} -std=c++20 -E ${INCLUDES} ${file}.cpp -o ${file}.ii
    RESULT_VARIABLE status ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    file(REMOVE ${file}.cpp ${file}.ii)
    message(FATAL_ERROR "cannot preprocess ${ARGN}:\n${said}")
  endif()
  execute_process(COMMAND grep -cvE "^(#.*|[ \t]*)$" ${file}.ii OUTPUT_VARIABLE lines)
  string(STRIP "${lines}" lines)
  execute_process(COMMAND grep -m1 -oE "^# [0-9]+ \"[^\"]*${forbidden}" ${file}.ii
    OUTPUT_VARIABLE hit OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REMOVE ${file}.cpp ${file}.ii)
  set(${result} ${lines} PARENT_SCOPE)
  set(${result}_forbidden "${hit}" PARENT_SCOPE)
endfunction()

set(faults "")
if(OVER)
  preprocess(base ${OVER})
  math(EXPR LIMIT "${base} * (100 + ${PERCENT}) / 100")
endif()
foreach(header IN LISTS HEADERS)
  preprocess(lines ${OVER} ${header})
  message(STATUS "${header}: ${lines} of ${LIMIT} lines")
  if(lines GREATER LIMIT)
    string(APPEND faults "\n  ${header} has ${lines} preprocessed lines, its budget is ${LIMIT}")
  endif()
  if(NOT OVER AND lines_forbidden)
    string(APPEND faults "\n  ${header} includes ${lines_forbidden}")
  endif()
endforeach()
if(faults)
  message(FATAL_ERROR "over budget:${faults}")
endif()
