#include <muster/cluster/environment.hpp>
#include <muster/launch/error.hpp>

#include "catch.hpp"

using muster::EnvSnapshot;

namespace {

EnvSnapshot torchrun() {
  return {{{"RANK", "3"},
           {"WORLD_SIZE", "4"},
           {"LOCAL_RANK", "1"},
           {"LOCAL_WORLD_SIZE", "2"},
           {"GROUP_RANK", "1"},
           {"GROUP_WORLD_SIZE", "2"},
           {"MASTER_ADDR", "node0"},
           {"MASTER_PORT", "29500"},
           {"TORCHELASTIC_RUN_ID", "none"},
           {"TORCHELASTIC_RESTART_COUNT", "2"},
           {"TORCHELASTIC_USE_AGENT_STORE", "True"}}};
}

} // namespace

TEST_CASE("torchrun's full set is a world", "[environment]") {
  const auto world = muster::detect_world(torchrun());
  REQUIRE(world);
  CHECK(world->rank == 3);
  CHECK(world->size == 4);
  CHECK(world->local_rank == 1);
  CHECK(world->local_size == 2);
  CHECK(world->node_rank == 1);
  CHECK(world->node_count == 2);
  CHECK(world->attempt == 2);
  CHECK(world->master_addr == "node0");
  CHECK(world->master_port == 29500);
  CHECK(world->store_is_served);
  CHECK_THAT(world->source, Catch::Contains("torchrun"));
}

TEST_CASE("nothing, or weak evidence, is no world", "[environment]") {
  CHECK_FALSE(muster::detect_world({}));
  CHECK_FALSE(muster::detect_world({{{"RANK", "0"}, {"WORLD_SIZE", "2"}}}));
  CHECK_FALSE(muster::detect_world({{{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}}}));
  EnvSnapshot empty = torchrun();
  empty.variables["TORCHELASTIC_RUN_ID"] = "";
  empty.variables["RANK"] = "";
  CHECK_FALSE(muster::detect_world(empty));
}

TEST_CASE("a broken set is an error that shows it", "[environment]") {
  EnvSnapshot missing = torchrun();
  missing.variables.erase("LOCAL_RANK");
  CHECK_THROWS_WITH(muster::detect_world(missing), Catch::Contains("LOCAL_RANK is not"));
  for (const auto& [name, value] : {std::pair("RANK", "4"),
                                    std::pair("RANK", "-1"),
                                    std::pair("RANK", "1x"),
                                    std::pair("LOCAL_RANK", "2"),
                                    std::pair("WORLD_SIZE", "0"),
                                    std::pair("WORLD_SIZE", "4.0"),
                                    std::pair("MASTER_PORT", "tcp://10.0.0.5:29500")}) {
    EnvSnapshot broken = torchrun();
    broken.variables[name] = value;
    INFO(name << "=" << value);
    CHECK_THROWS_AS(muster::detect_world(broken), muster::UsageError);
    CHECK_THROWS_WITH(muster::detect_world(broken),
                      Catch::Contains(std::string(name) + "='" + value + "'"));
  }
}

TEST_CASE("MUSTER_CLUSTER overrides what is found", "[environment]") {
  EnvSnapshot chosen = torchrun();
  chosen.variables["MUSTER_CLUSTER"] = "local";
  CHECK_FALSE(muster::detect_world(chosen));
  CHECK_THROWS_WITH(muster::detect_world({{{"MUSTER_CLUSTER", "torchrun"}}}),
                    Catch::Contains("not all set"));
  CHECK_THROWS_WITH(muster::detect_world({{{"MUSTER_CLUSTER", "slurmx"}}}),
                    Catch::Contains("local, torchrun"));
}
