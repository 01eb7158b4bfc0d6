#define CATCH_CONFIG_RUNNER
#include "catch.hpp"

// Compiled twice: programs whose tests start ranks of themselves have MUSTER_TEST_RANKS.
#ifdef MUSTER_TEST_RANKS
#include <muster/launch/init.hpp>
#endif

int main(int argc, char** argv) {
#ifdef MUSTER_TEST_RANKS
  muster::init(argc, argv);
#endif
  return Catch::Session().run(argc, argv);
}
