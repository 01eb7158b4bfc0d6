#pragma once

#include <muster/comm/backend.hpp>

#include <string>

// The backends that come with muster. Each is one file, since c10d's headers are heavy.
namespace muster::comm {

c10::intrusive_ptr<c10d::Backend> make_gloo(const BackendRequest& request);
/// Puts "nccl" into `backends` where muster was built with it.
void add_nccl(Backends& backends);

/// The network interfaces or the address that Gloo should use.
struct GlooPlace {
  std::vector<std::string> interfaces; // from `interfaces_variable`, else
  std::string address;                 // if not empty, else c10d's default
};

/// `interfaces_variable` is the value of MUSTER_INTERFACE or GLOO_SOCKET_IFNAME: names separated by
/// commas. Without it: the loopback address when all ranks are on this host, else the address of
/// this host on the way to the master. Throws UsageError for NCCL's "^name" and "=name".
GlooPlace gloo_place(const World& world, const char* interfaces_variable);

/// This host's address on the way to `host`; empty if there is none.
std::string address_towards(const std::string& host, int port);

} // namespace muster::comm
