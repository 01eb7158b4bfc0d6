#include "run.hpp"

#include <cstdio>

namespace muster::cli {

int run(const RunOptions&) {
  std::fputs("muster run: not there yet\n", stderr);
  return 1;
}

} // namespace muster::cli
