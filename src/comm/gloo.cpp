#include <muster/launch/error.hpp>

#include <cstdlib>
#include <memory>

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "comm/backends.hpp"

namespace muster::comm {

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t end = std::min(text.find(',', start), text.size());
    if (end > start)
      parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

const char* interfaces_variable() {
  const char* ours = std::getenv("MUSTER_INTERFACE");
  return ours && *ours ? ours : std::getenv("GLOO_SOCKET_IFNAME");
}

/// The local address of a UDP socket that is connected to `target`. Nothing is sent.
std::string local_address_towards(const addrinfo& target) {
  const int fd = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return {};
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  char host[NI_MAXHOST] = "";
  auto* address = reinterpret_cast<sockaddr*>(&local);
  const bool known =
      ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
      ::getsockname(fd, address, &size) == 0 &&
      ::getnameinfo(address, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0;
  ::close(fd);
  return known ? host : "";
}

} // namespace

std::string address_towards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (const addrinfo* each = found; each; each = each->ai_next)
    if (std::string address = local_address_towards(*each); !address.empty())
      return address;
  return {};
}

GlooPlace gloo_place(const World& world, const char* interfaces) {
  GlooPlace place;
  if (interfaces && *interfaces) {
    if (*interfaces == '^' || *interfaces == '=')
      throw UsageError(
          fmt::format("MUSTER_INTERFACE or GLOO_SOCKET_IFNAME is '{}', which only NCCL "
                      "understands; Gloo takes names, separated by commas",
                      interfaces));
    place.interfaces = split(interfaces);
  } else if (world.node_count == 1) {
    place.address = "127.0.0.1";
  } else if (!world.master_addr.empty()) {
    place.address = address_towards(world.master_addr, world.master_port);
  }
  return place;
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const BackendRequest& request) {
  using Gloo = c10d::ProcessGroupGloo;
  const GlooPlace place = gloo_place(request.world, interfaces_variable());
  auto options = Gloo::Options::create(request.world.timeout);
  for (const std::string& interface : place.interfaces)
    options->devices.push_back(Gloo::createDeviceForInterface(interface));
  if (place.interfaces.empty())
    options->devices.push_back(place.address.empty()
                                   ? Gloo::createDefaultDevice()
                                   : Gloo::createDeviceForHostname(place.address));
  return c10::make_intrusive<Gloo>(
      request.store, request.world.rank, request.world.size, std::move(options));
}

} // namespace muster::comm
