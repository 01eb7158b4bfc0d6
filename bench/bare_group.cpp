// Forked ranks that make a Gloo group, reduce one number and leave by _exit: the bound of a launch,
// and what it costs when they meet over c10d's TCPStore instead.
#include <optional>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/torch.h>

#include "bare_store.hpp"
#include "serve.hpp"

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

/// Group, first all-reduce, end.
[[noreturn]] void be_rank(const StorePtr& store, int rank, int size) {
  using Gloo = c10d::ProcessGroupGloo;
  auto options = Gloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  group->setBackend(c10::DeviceType::CPU,
                    c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<Gloo>(store, rank, size, options));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  std::vector<at::Tensor> tensors{torch::ones({1})};
  group->allreduce(tensors)->wait();
  ::_exit(tensors[0].item<float>() == static_cast<float>(size) ? 0 : 1);
}

void launch(int size) {
  std::vector<pid_t> children;
  std::vector<int> sockets;
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      std::_Exit(1);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      for (const int socket : sockets)
        ::close(socket);
      be_rank(c10::make_intrusive<bench::BareStore>(ends[1]), rank, size);
    }
    ::close(ends[1]);
    children.push_back(pid);
    sockets.push_back(ends[0]);
  }
  bench::BareServer(sockets).run();
  bench::wait_for(children);
}

StorePtr tcp_store(const std::string& host, int port, int size, bool serves, int listening = -1) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(port);
  options.isServer = serves;
  options.numWorkers = static_cast<std::size_t>(size);
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(60);
  if (serves && listening >= 0)
    options.masterListenFd = listening;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

/// A socket that listens before the first rank is there, so that no connection is tried twice.
int listening_socket(int& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, generic, length) != 0 || ::listen(fd, 1024) != 0 ||
      ::getsockname(fd, generic, &length) != 0)
    std::_Exit(1);
  port = ntohs(address.sin_port);
  return fd;
}

void launch_over_tcp(int size) {
  int port = 0;
  const int listening = listening_socket(port);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      be_rank(tcp_store("127.0.0.1", port, size, rank == 0, listening), rank, size);
    }
    children.push_back(pid);
  }
  ::close(listening);
  bench::wait_for(children);
}

int variable(const char* name, const char* other) {
  const char* text = std::getenv(name) ? std::getenv(name) : std::getenv(other);
  return text ? std::atoi(text) : 0;
}

/// A rank that torchrun or mpirun has started.
[[noreturn]] void be_started_rank() {
  const int rank = variable("RANK", "OMPI_COMM_WORLD_RANK");
  const int size = variable("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE");
  const char* host = std::getenv("MASTER_ADDR");
  const bool served = std::getenv("TORCHELASTIC_USE_AGENT_STORE") != nullptr;
  be_rank(
      tcp_store(host ? host : "127.0.0.1", variable("MASTER_PORT", ""), size, rank == 0 && !served),
      rank,
      size);
}

} // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 2;
  if (mode == "warm")
    return bench::serve_times([&] { launch(ranks); });
  if (mode == "once") {
    launch(ranks);
    return 0;
  }
  if (mode == "tcp-warm")
    return bench::serve_times([&] { launch_over_tcp(ranks); });
  if (mode == "tcp-once") {
    launch_over_tcp(ranks);
    return 0;
  }
  if (mode == "rank")
    be_started_rank();
  std::cerr << "usage: bare_group warm|once|tcp-warm|tcp-once RANKS, or rank\n";
  return 2;
}
