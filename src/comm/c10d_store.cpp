#include "comm/c10d_store.hpp"

#include <muster/launch/error.hpp>

#include <map>
#include <mutex>
#include <tuple>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace muster::comm {

namespace {

std::string to_text(const C10dStore::Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

C10dStore::Bytes to_bytes(const std::string& text) { return {text.begin(), text.end()}; }

/// c10d's callers expect its own exception when a wait runs out.
template <class F>
auto with_c10d_errors(F&& call) {
  try {
    return call();
  } catch (const Timeout& error) {
    C10_THROW_ERROR(DistStoreError, error.what());
  }
}

c10::intrusive_ptr<c10d::TCPStore> connect(const World& world, bool use_libuv) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(world.master_port);
  options.isServer = world.rank == 0 && !world.store_is_served;
  options.numWorkers = static_cast<std::size_t>(world.size);
  options.waitWorkers = false;
  options.timeout = world.timeout;
  options.useLibUV = use_libuv;
  return c10::make_intrusive<c10d::TCPStore>(world.master_addr, options);
}

c10::intrusive_ptr<c10d::Store> connect(const World& world) {
  try {
    return connect(world, true);
  } catch (const std::exception& error) {
    if (std::string_view(error.what()).find("libuv") == std::string_view::npos &&
        std::string_view(error.what()).find("libUV") == std::string_view::npos)
      throw;
    return connect(world, false); // this libtorch was built without it
  }
}

/// The environment names one port for the life of the process, so what was opened there stays open:
/// a second launch would otherwise meet the server of the first while that is going away. Never
/// destroyed, since c10d may be gone by then.
c10::intrusive_ptr<c10d::Store> tcp_store(const World& world) {
  using Place = std::tuple<std::string, int, int>;
  static auto* const mutex = new std::mutex;
  static auto* const open = new std::map<Place, c10::intrusive_ptr<c10d::Store>>;
  const Place place{world.master_addr, world.master_port, world.rank};
  {
    const std::lock_guard lock(*mutex);
    const auto found = open->find(place);
    if (found != open->end())
      return found->second;
  }
  auto store = connect(world);
  const std::lock_guard lock(*mutex);
  return open->emplace(place, std::move(store)).first->second;
}

} // namespace

C10dStore::C10dStore(std::shared_ptr<muster::Store> store, Millis timeout)
    : c10d::Store(timeout), store_(std::move(store)) {}

void C10dStore::set(const std::string& key, const Bytes& value) {
  store_->set(key, to_text(value));
}

C10dStore::Bytes
C10dStore::compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) {
  return to_bytes(store_->compare_set(key, to_text(expected), to_text(desired)));
}

C10dStore::Bytes C10dStore::get(const std::string& key) {
  return with_c10d_errors([&] { return to_bytes(store_->get(key, timeout_)); });
}

std::int64_t C10dStore::add(const std::string& key, std::int64_t amount) {
  return store_->add(key, amount);
}

bool C10dStore::deleteKey(const std::string& key) { return store_->erase(key); }

bool C10dStore::check(const std::vector<std::string>& keys) { return store_->check(keys); }

std::int64_t C10dStore::getNumKeys() { return store_->size(); }

void C10dStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void C10dStore::wait(const std::vector<std::string>& keys, const Millis& timeout) {
  with_c10d_errors([&] { store_->wait(keys, timeout); });
}

void C10dStore::append(const std::string& key, const Bytes& value) {
  store_->append(key, to_text(value));
}

std::vector<C10dStore::Bytes> C10dStore::multiGet(const std::vector<std::string>& keys) {
  return with_c10d_errors([&] {
    std::vector<Bytes> values;
    for (const std::string& text : store_->get_all(keys, timeout_))
      values.push_back(to_bytes(text));
    return values;
  });
}

void C10dStore::multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) {
  for (std::size_t i = 0; i < keys.size(); ++i)
    set(keys[i], values.at(i));
}

c10::intrusive_ptr<c10d::Store> C10dStore::clone() {
  return c10::make_intrusive<C10dStore>(store_, timeout_);
}

void C10dStore::queuePush(const std::string& queue, const Bytes& value) {
  store_->push(queue, to_text(value));
}

C10dStore::Bytes C10dStore::queuePop(const std::string& queue, bool block) {
  const auto value =
      with_c10d_errors([&] { return store_->pop(queue, block ? timeout_ : Millis(0)); });
  if (!value)
    C10_THROW_ERROR(DistStoreError, fmt::format("the queue {} is empty", queue));
  return to_bytes(*value);
}

std::int64_t C10dStore::queueLen(const std::string& queue) { return store_->queue_size(queue); }

std::vector<std::string> C10dStore::listKeys() { return store_->keys(); }

c10::intrusive_ptr<c10d::Store> open_store(const World& world) {
  if (world.store)
    return c10::make_intrusive<C10dStore>(world.store, world.timeout);
  if (world.size == 1)
    return c10::make_intrusive<c10d::HashStore>();
  if (world.master_addr.empty() || world.master_port == 0)
    throw UsageError(
        fmt::format("the {} ranks of this world ({}) have nowhere to meet: no launcher "
                    "serves a store, and MASTER_ADDR and MASTER_PORT are not set",
                    world.size,
                    world.source));
  return tcp_store(world);
}

} // namespace muster::comm
