#include <muster/launch/entry.hpp>
#include <muster/launch/error.hpp>

#include <cstdlib>

#include "catch.hpp"

namespace {

int twice(muster::World& world, int number) { return number * 2 + world.rank; }

} // namespace

TEST_CASE("a function is found again by build id and offset", "[entry]") {
  const void* address = reinterpret_cast<const void*>(&twice);
  const muster::Symbol symbol = muster::symbol_of(address);
  CHECK(symbol.build_id.size() >= 8);
  CHECK(muster::address_of(symbol) == address);
}

TEST_CASE("a function of a shared library is named by that library", "[entry]") {
  const muster::Symbol symbol = muster::symbol_of(reinterpret_cast<const void*>(&std::abort));
#ifdef __SANITIZE_THREAD__ // which has an abort of its own
  CHECK_THAT(symbol.module, Catch::Contains("libtsan"));
#else
  CHECK_THAT(symbol.module, Catch::Contains("libc"));
#endif
  CHECK(muster::address_of(symbol) == reinterpret_cast<const void*>(&std::abort));
}

TEST_CASE("an address in no module, and a module that is not loaded, are told apart", "[entry]") {
  int local = 0;
  CHECK_THROWS_AS(muster::symbol_of(&local), muster::UsageError);
  CHECK_THROWS_WITH(muster::address_of({"another build", 0, "/lib/libplugin.so"}),
                    Catch::Contains("/lib/libplugin.so"));
}

TEST_CASE("work carries a call through bytes", "[entry]") {
  const muster::Work work = muster::detail::work_with_world(&twice, short{21});
  muster::World world;
  world.rank = 1;
  muster::Reader arguments(work.arguments);
  const muster::Blob blob = muster::Blob::create("test");
  muster::Writer result(blob);
  muster::detail::Call call{muster::address_of(work.function), world, arguments, result};
  reinterpret_cast<muster::detail::Thunk>(muster::address_of(work.thunk))(call);
  result.finish();
  CHECK(muster::decode<int>(blob) == 43);
}

TEST_CASE("a lambda without captures is a function", "[entry]") {
  CHECK(muster::detail::as_function([](muster::World&) { return 3; }) != nullptr);
}
