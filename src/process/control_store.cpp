#include "control_store.hpp"

#include <muster/launch/error.hpp>

#include <algorithm>

#include <poll.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "channel.hpp"

namespace muster::process {

namespace {

constexpr auto launcher_answers_within = std::chrono::seconds(60);
constexpr auto longest_wait = std::chrono::hours(24 * 365);

} // namespace

/// Reads one message while the lock is given up. Called by one thread at a time.
void ControlStore::read_one(std::unique_lock<std::mutex>& lock, Millis patience) {
  reading_ = true;
  lock.unlock();
  pollfd readable{socket_, POLLIN, 0};
  const int count = ::poll(
      &readable,
      1,
      static_cast<int>(std::min<std::int64_t>(patience.count(), std::int64_t{1'000'000'000})));
  bool closed = false;
  std::optional<Message> message;
  if (count > 0)
    message = receive_message(socket_, false, closed);
  lock.lock();
  reading_ = false;
  if (closed)
    over_ = "the launcher is gone";
  else if (message && message->kind == Kind::peer_lost)
    over_ = message->body;
  else if (message && message->kind == Kind::store_reply) {
    StoreReply reply = unpack<StoreReply>(message->body);
    if (const auto found = pending_.find(reply.id); found != pending_.end())
      found->second = std::move(reply);
  }
  changed_.notify_all();
}

StoreReply ControlStore::wait_for(std::uint64_t id, Millis patience) {
  const auto limit = std::chrono::steady_clock::now() + patience;
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto& reply = pending_.at(id)) {
      StoreReply result = std::move(*reply);
      pending_.erase(id);
      return result;
    }
    const auto left = std::chrono::ceil<Millis>(limit - std::chrono::steady_clock::now());
    if (over_.empty() && left <= Millis::zero())
      over_ = "the launcher does not answer";
    if (!over_.empty()) {
      pending_.erase(id);
      throw RendezvousError(fmt::format("the job's store is closed: {}", over_));
    }
    if (reading_)
      changed_.wait_for(lock, left);
    else
      read_one(lock, left);
  }
}

StoreReply ControlStore::call(StoreRequest request) {
  request.id = ++next_id_;
  {
    const std::lock_guard lock(mutex_);
    pending_.emplace(request.id, std::nullopt);
  }
  const bool waits =
      request.op == StoreOp::get || request.op == StoreOp::wait || request.op == StoreOp::pop;
  const Millis patience = launcher_answers_within + Millis(waits ? request.number : 0);
  if (send_message(socket_, Kind::store_request, pack(request), true) == Sent::closed) {
    const std::lock_guard lock(mutex_);
    if (over_.empty())
      over_ = "the launcher is gone";
  }
  StoreReply reply = wait_for(request.id, patience);
  if (reply.status == StoreStatus::closed)
    throw RendezvousError("the job's store is closed: the job is being stopped");
  return reply;
}

StoreReply ControlStore::waiting_call(StoreRequest request, Millis timeout) {
  request.number = std::clamp(timeout, Millis::zero(), Millis(longest_wait)).count();
  return call(std::move(request));
}

void ControlStore::set(const std::string& key, const std::string& value) {
  call({.op = StoreOp::set, .keys = {key}, .values = {value}});
}

std::string ControlStore::get(const std::string& key, Millis timeout) {
  return std::move(get_all({key}, timeout).at(0));
}

std::vector<std::string> ControlStore::get_all(const std::vector<std::string>& keys,
                                               Millis timeout) {
  StoreReply reply = waiting_call({.op = StoreOp::get, .keys = keys}, timeout);
  if (reply.status == StoreStatus::timeout)
    throw Timeout(
        fmt::format("store: no rank set '{}' within {} ms", reply.values.at(0), timeout.count()));
  return std::move(reply.values);
}

std::int64_t ControlStore::add(const std::string& key, std::int64_t amount) {
  return call({.op = StoreOp::add, .keys = {key}, .number = amount}).number;
}

std::string ControlStore::compare_set(const std::string& key,
                                      const std::string& expected,
                                      const std::string& desired) {
  StoreReply reply =
      call({.op = StoreOp::compare_set, .keys = {key}, .values = {expected, desired}});
  return std::move(reply.values.at(0));
}

void ControlStore::append(const std::string& key, const std::string& value) {
  call({.op = StoreOp::append, .keys = {key}, .values = {value}});
}

void ControlStore::wait(const std::vector<std::string>& keys, Millis timeout) {
  const StoreReply reply = waiting_call({.op = StoreOp::wait, .keys = keys}, timeout);
  if (reply.status == StoreStatus::timeout)
    throw Timeout(
        fmt::format("store: no rank set '{}' within {} ms", reply.values.at(0), timeout.count()));
}

bool ControlStore::check(const std::vector<std::string>& keys) {
  return call({.op = StoreOp::check, .keys = keys}).number != 0;
}

bool ControlStore::erase(const std::string& key) {
  return call({.op = StoreOp::erase, .keys = {key}}).number != 0;
}

std::int64_t ControlStore::size() { return call({.op = StoreOp::size}).number; }

std::vector<std::string> ControlStore::keys() { return call({.op = StoreOp::keys}).values; }

void ControlStore::push(const std::string& queue, const std::string& value) {
  call({.op = StoreOp::push, .keys = {queue}, .values = {value}});
}

std::optional<std::string> ControlStore::pop(const std::string& queue, Millis timeout) {
  StoreReply reply = waiting_call({.op = StoreOp::pop, .keys = {queue}}, timeout);
  if (reply.status == StoreStatus::timeout)
    return std::nullopt;
  return std::move(reply.values.at(0));
}

std::int64_t ControlStore::queue_size(const std::string& queue) {
  return call({.op = StoreOp::queue_size, .keys = {queue}}).number;
}

} // namespace muster::process
