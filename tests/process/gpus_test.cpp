#include <muster/launch/error.hpp>

#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "catch.hpp"
#include "process/gpus.hpp"

using muster::EnvSnapshot;
using muster::RankSpec;
using muster::process::gpu_for;
using muster::process::gpu_numa_nodes;
using muster::process::visible_gpus;

namespace {

using Nodes = std::vector<std::optional<int>>;

/// A folder with the files of a driver.
class FakeRoot {
public:
  FakeRoot() {
    char name[] = "/tmp/muster-gpus-XXXXXX";
    path_ = ::mkdtemp(name);
  }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;
  ~FakeRoot() { std::filesystem::remove_all(path_); }

  void
  add(const std::string& address, int node, const std::string& uuid, const char* excluded = "No") {
    write("/proc/driver/nvidia/gpus/" + address + "/information",
          "Model: \t\t Fake\nIRQ:   \t\t 42\nGPU UUID: \t " + uuid + "\nBus Location: \t " +
              address + "\nGPU Excluded:\t " + excluded + "\n");
    write("/sys/bus/pci/devices/" + address + "/numa_node", std::to_string(node) + "\n");
  }

  const std::string& path() const { return path_; }

private:
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
    std::ofstream(path_ + file) << text;
  }

  std::string path_;
};

/// Four GPUs, two on each node; the kernel does not know the last one's.
struct Server : FakeRoot {
  Server() {
    add("0000:1b:00.0", 0, "GPU-aaaa1111-0000");
    add("0000:ca:00.0", 1, "GPU-cccc3333-0000");
    add("0000:43:00.0", 0, "GPU-bbbb2222-0000");
    add("10000:01:00.0", -1, "GPU-dddd4444-0000");
  }
};

EnvSnapshot list(const std::string& value) { return {{{"CUDA_VISIBLE_DEVICES", value}}}; }

std::vector<RankSpec> specs(int count) {
  std::vector<RankSpec> ranks(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    ranks[static_cast<std::size_t>(i)].local_rank = i;
  return ranks;
}

} // namespace

TEST_CASE("without a list every GPU of the driver counts", "[gpus]") {
  Server server;
  CHECK(visible_gpus({}, server.path()) == 4);
  server.add("0000:02:00.0", 0, "GPU-eeee5555-0000", "Yes"); // the driver leaves it alone
  CHECK(visible_gpus({}, server.path()) == 4);
}

TEST_CASE("without a driver there is no GPU, whatever the list says", "[gpus]") {
  const FakeRoot empty;
  CHECK(visible_gpus({}, empty.path()) == 0);
  CHECK(visible_gpus(list("0,1"), empty.path()) == 0);
  CHECK(visible_gpus(list("GPU-aaaa"), empty.path()) == 0);
  CHECK(gpu_numa_nodes(specs(2), {}, empty.path()) == Nodes(2));
}

TEST_CASE("a list ends where CUDA stops reading it", "[gpus]") {
  const Server server;
  const std::pair<const char*, int> cases[] = {
      {"", 0},
      {"-1", 0},
      {"NoDevFiles", 0},
      {"2", 1},
      {"3,1", 2},
      {" 3 , 1 ", 2},
      {"0,1,2,3", 4},
      {"0,1,4,2", 2},
      {"0,-1,2", 1},
      {"0,,2", 1},
      {"1gpu2,2ampere", 2},
      {"0,1,0", 0},
      {"99999999999999999999", 0},
      {"GPU-aaaa1111-0000,GPU-cccc", 2},
      {"GPU-aaaa,GPU-9999,GPU-cccc", 1},
      {"GPU-aaaa,1", 1},
      {"1,GPU-aaaa", 1},
      {"GPU-aaaa,GPU-aaaa", 0},
      {"MIG-12345678-9abc,MIG-22345678-9abc", 2},
      {"MIG-GPU-aaaa1111-0000/1/0", 1},
  };
  for (const auto& [value, count] : cases) {
    INFO("'" << value << "'");
    CHECK(visible_gpus(list(value), server.path()) == count);
  }
}

TEST_CASE("a GPU whose UUID the driver does not tell may be any", "[gpus]") {
  FakeRoot root;
  root.add("0000:1b:00.0", 0, "GPU-" + std::string(8, '?'));
  CHECK(visible_gpus(list("GPU-aaaa"), root.path()) == 1);
  CHECK(gpu_numa_nodes(specs(1), list("GPU-aaaa"), root.path()) == Nodes{std::nullopt});
  CHECK(gpu_numa_nodes(specs(1), list("0"), root.path()) == Nodes{0});
}

TEST_CASE("ranks have the nodes of their GPUs, numbered by PCI address", "[gpus]") {
  const Server server;
  CHECK(gpu_numa_nodes(specs(5), {}, server.path()) == Nodes{0, 0, 1, std::nullopt, std::nullopt});
  CHECK(gpu_numa_nodes(specs(3), list("2,0"), server.path()) == Nodes{1, 0, std::nullopt});
  CHECK(gpu_numa_nodes(specs(1), list("GPU-cccc"), server.path()) == Nodes{1});
  CHECK(gpu_numa_nodes(specs(1), list("MIG-GPU-cccc3333-0000/1/0"), server.path()) == Nodes{1});
  CHECK(gpu_numa_nodes(specs(1), list("MIG-12345678-9abc"), server.path()) == Nodes{std::nullopt});
}

TEST_CASE("a list of the rank's own goes before the launcher's", "[gpus]") {
  const Server server;
  auto ranks = specs(3);
  ranks[1].env["CUDA_VISIBLE_DEVICES"] = "2"; // its only one
  ranks[2].env["CUDA_VISIBLE_DEVICES"] = "0,1,2";
  CHECK(gpu_numa_nodes(ranks, list("1"), server.path()) == Nodes{0, 1, 1});
}

TEST_CASE("a rank that is to see one GPU gets its entry of the list", "[gpus]") {
  CHECK(gpu_for(3, {}) == "3");
  CHECK(gpu_for(1, list("6, 4")) == "4");
  CHECK(gpu_for(1, list("MIG-a,MIG-b")) == "MIG-b");
  CHECK(gpu_for(0, list("GPU-aaaa")) == "GPU-aaaa");
}

TEST_CASE("a list that is too short for a rank is an error that names both", "[gpus]") {
  CHECK_THROWS_AS(gpu_for(2, list("6,4")), muster::UsageError);
  CHECK_THROWS_WITH(gpu_for(2, list("6,4")),
                    Catch::Contains("local rank 2: CUDA_VISIBLE_DEVICES='6,4' names 2 GPUs"));
  CHECK_THROWS_WITH(gpu_for(0, list("")), Catch::Contains("='' names 0 GPUs"));
  CHECK_THROWS_WITH(gpu_for(1, list("-1")), Catch::Contains("='-1' names 0 GPUs"));
}
