#pragma once

#include <muster/comm/store.hpp>
#include <muster/comm/world.hpp>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace muster::comm {

/// c10d's view of a muster::Store. What only newer versions of libtorch declare is overridden there
/// and a plain function elsewhere, hence without `override`.
class C10dStore final : public c10d::Store {
public:
  using Bytes = std::vector<std::uint8_t>;
  using Millis = std::chrono::milliseconds;

  C10dStore(std::shared_ptr<muster::Store> store, Millis timeout);

  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const Bytes& value) override;
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override;
  Bytes get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t amount) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const Millis& timeout) override;
  void append(const std::string& key, const Bytes& value) override;
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override;
  bool hasExtendedApi() const override { return true; }

  virtual c10::intrusive_ptr<c10d::Store> clone();                      // NOLINT: see above
  virtual void queuePush(const std::string& queue, const Bytes& value); // NOLINT
  virtual Bytes queuePop(const std::string& queue, bool block);         // NOLINT
  virtual std::int64_t queueLen(const std::string& queue);              // NOLINT
  virtual std::vector<std::string> listKeys();                          // NOLINT

private:
  std::shared_ptr<muster::Store> store_;
};

/// The store where the ranks of `world` meet: its launcher's, a TCPStore at the address that it
/// names, or one in memory for a single rank. Throws UsageError if it has none of these.
c10::intrusive_ptr<c10d::Store> open_store(const World& world);

} // namespace muster::comm
