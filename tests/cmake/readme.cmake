# The program in README.md is the one in FILE: cmake -DREADME=… -DFILE=… -P readme.cmake
file(READ ${README} readme)
file(READ ${FILE} program)
string(FIND "${readme}" "```cpp\n${program}```\n" at)
if(at EQUAL -1)
  message(FATAL_ERROR "${README} does not show ${FILE} as it is, between ```cpp and ```")
endif()
