#include <muster/comm/process_group.hpp>
#include <muster/launch/error.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <cxxabi.h>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/debug.h>

#include "comm/c10d_store.hpp"
#include "comm/meeting.hpp"
#include "comm/notes.hpp"
#include "comm/rank_list.hpp"

namespace muster {

namespace {

using comm::CollectiveNote;
using Native = c10::intrusive_ptr<c10d::ProcessGroup>;
using BackendType = c10d::ProcessGroup::BackendType;

/// What a rank says it is about to do, where ranks disagree; ends with a zero.
using IntentText = std::array<char, 192>;

/// A rank's value in a collective over values, or its beginning.
struct Payload {
  static constexpr std::size_t most_bytes = 56;
  std::uint64_t size = 0; // of the whole
  char bytes[most_bytes] = {};
};

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

std::string in_brackets(const std::string& detail) {
  return detail.empty() ? std::string() : fmt::format(" ({})", detail);
}

std::string of(const std::string& what) {
  return what.empty() ? std::string() : fmt::format(" of {}", demangled(what));
}

/// Fits into an IntentText; what does not fit is replaced by its hash.
std::string shortened(std::string text) {
  constexpr std::size_t room = std::tuple_size_v<IntentText> - 1;
  if (text.size() <= room)
    return text;
  const std::string hash = fmt::format("...#{:x}", std::hash<std::string>()(text));
  return text.substr(0, room - hash.size()) + hash;
}

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format(
      "a {} tensor {}", c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()));
}

at::Tensor as_bytes(const void* data, std::size_t size) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(size)}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), data, size);
  return bytes;
}

std::string to_string(const at::Tensor& bytes, std::size_t size) {
  return {static_cast<const char*>(bytes.const_data_ptr()), size};
}

/// The rows of `bytes.size(0)` equal tensors from all ranks.
at::Tensor gather_rows(const Native& group, const at::Tensor& mine) {
  std::vector<std::int64_t> sizes{group->getSize()};
  sizes.insert(sizes.end(), mine.sizes().begin(), mine.sizes().end());
  at::Tensor all = at::empty(sizes, mine.options());
  std::vector<at::Tensor> inputs{mine};
  std::vector<std::vector<at::Tensor>> outputs{all.unbind(0)};
  group->allgather(outputs, inputs)->wait();
  return all;
}

/// Every rank's `mine`, a plain value.
template <class T>
std::vector<T> gather_values(const Native& group, const T& mine) {
  const at::Tensor rows = gather_rows(group, as_bytes(&mine, sizeof mine));
  std::vector<T> values(static_cast<std::size_t>(group->getSize()));
  std::memcpy(values.data(), rows.const_data_ptr(), values.size() * sizeof(T));
  return values;
}

[[noreturn]] void tell_disagreement(const Native& group, const std::string& intent) {
  IntentText mine = {};
  shortened(intent).copy(mine.data(), mine.size() - 1);
  std::vector<std::string> intents;
  for (const IntentText& text : gather_values(group, mine))
    intents.emplace_back(text.data());
  throw RendezvousError("ranks disagree on what to do together: " + comm::who_said_what(intents));
}

/// True if all ranks have the same text. One small all-reduce of its hash and of the complement,
/// whose minima are complements of each other only then.
bool all_say(const Native& group, const std::string& text) {
  const auto hash = static_cast<std::int64_t>(std::hash<std::string>()(text));
  const at::Tensor least = at::empty({2}, at::kLong);
  auto* values = least.mutable_data_ptr<std::int64_t>();
  values[0] = hash;
  values[1] = ~hash;
  std::vector<at::Tensor> tensors{least};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MIN;
  group->allreduce(tensors, options)->wait();
  return values[0] == ~values[1];
}

/// The same memory as bytes in one dimension; `tensor` is contiguous.
at::Tensor flat_bytes(const at::Tensor& tensor) { return tensor.reshape(-1).view(at::kByte); }

void check_tensor(const at::Tensor& tensor, const char* operation) {
  if (!tensor.defined())
    throw UsageError(fmt::format("{} of an undefined tensor", operation));
  if (tensor.layout() != at::kStrided)
    throw UsageError(fmt::format("{} of a tensor of layout {}: only dense ones can be sent",
                                 operation,
                                 c10::str(tensor.layout())));
}

/// Throws UsageError where the operation has no exact meaning for the dtype.
void check_reducible(at::ScalarType dtype, ReduceOp op) {
  const bool linear = op == ReduceOp::sum || op == ReduceOp::mean;
  if (dtype == at::kBool)
    detail::check_reducible<bool>(op);
  else if (at::isIntegralType(dtype, false))
    detail::check_reducible<int>(op);
  else if (at::isComplexType(dtype) && !linear)
    throw UsageError(
        fmt::format("all_reduce cannot take the {} of complex numbers", to_string(op)));
  else if (!at::isFloatingType(dtype) && !at::isComplexType(dtype))
    throw UsageError(
        fmt::format("all_reduce cannot take the {} of {}", to_string(op), c10::toString(dtype)));
}

/// The dtype in which values are reduced: not every build of Gloo knows the small ones.
at::ScalarType wire_type(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  if (dtype == at::kBool)
    return at::kByte;
  if (tensor.is_cpu() && dtype == at::kShort)
    return at::kInt;
  if (tensor.is_cpu() && at::isReducedFloatingType(dtype))
    return at::kFloat;
  return dtype;
}

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
  case ReduceOp::min:
    return c10d::ReduceOp::MIN;
  case ReduceOp::max:
    return c10d::ReduceOp::MAX;
  case ReduceOp::product:
    return c10d::ReduceOp::PRODUCT;
  default:
    return c10d::ReduceOp::SUM; // means are divided here: not every build of Gloo can
  }
}

BackendType backend_type(const std::string& name) {
  if (name == "gloo")
    return BackendType::GLOO;
  return name == "nccl" ? BackendType::NCCL : BackendType::CUSTOM;
}

template <class G>
void shut_down(G& group) {
  if constexpr (requires { group.shutdown(); })
    group.shutdown();
}

c10::intrusive_ptr<c10d::Store> part_of(const c10::intrusive_ptr<c10d::Store>& store,
                                        const std::string& name) {
  return c10::make_intrusive<c10d::PrefixStore>(name, store);
}

Native make_group(const World& world,
                  at::Device device,
                  const std::string& name,
                  const Backends& backends,
                  const c10::intrusive_ptr<c10d::Store>& store) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, world.rank, world.size);
  const auto add = [&](const std::string& backend, at::Device place) {
    group->setBackend(place.type(),
                      backend_type(backend),
                      backends.at(backend)({world, place, part_of(store, backend)}));
  };
  add(name, device);
  group->setDefaultBackend(backend_type(name));
  if (!device.is_cpu())
    add("gloo", at::kCPU); // for values, and for what ranks compare
  return group;
}

} // namespace

const char* to_string(ReduceOp op) noexcept {
  constexpr const char* names[] = {"sum", "mean", "min", "max", "product"};
  return names[static_cast<std::size_t>(op)];
}

struct ProcessGroup::State {
  World world;
  at::Device device;
  std::string backend;
  c10::intrusive_ptr<c10d::Store> store;
  Native native;
};

ProcessGroup::ProcessGroup(const World& world, at::Device device, GroupOptions options) {
  static std::once_flag debug_level;
  std::call_once(debug_level, c10d::setDebugLevelFromEnvironment);
  const std::string backend = choose_backend(options.backend, device, options.backends);
  auto store = comm::group_store(comm::open_store(world), world, options.name);
  store->setTimeout(world.timeout);
  comm::call_the_roll(*store, world, options.name);
  Native native = make_group(world, device, backend, options.backends, store);
  state_ = std::make_unique<State>(State{world, device, backend, store, std::move(native)});
}

ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const noexcept { return state_->world.rank; }
int ProcessGroup::size() const noexcept { return state_->world.size; }
at::Device ProcessGroup::device() const noexcept { return state_->device; }
const std::string& ProcessGroup::backend() const noexcept { return state_->backend; }

const c10::intrusive_ptr<c10d::ProcessGroup>& ProcessGroup::native() const noexcept {
  return state_->native;
}

void ProcessGroup::close() {
  if (!state_->native)
    return;
  comm::part(*state_->store, state_->world);
  shut_down(*state_->native);
  state_->native.reset();
  state_->store.reset();
}

void ProcessGroup::leave() {
  if (!state_->native || state_->backend != "gloo")
    return close(); // NCCL has more to give back than threads
  comm::part(*state_->store, state_->world);
  [[maybe_unused]] const auto* left = state_->native.release();
}

void ProcessGroup::agree(const Intent& intent) {
  if (!state_->native)
    throw UsageError(fmt::format("{} after the process group was closed", intent.operation));
  const std::string text =
      fmt::format("{}{}{}", intent.operation, in_brackets(intent.detail), of(intent.what));
  const CollectiveNote note(intent.operation, 0);
  if (!all_say(state_->native, text))
    tell_disagreement(state_->native, text);
}

std::vector<std::string> ProcessGroup::exchange(const Intent& intent, const std::string& bytes) {
  agree(intent);
  const CollectiveNote note(intent.operation, bytes.size());
  Payload mine;
  mine.size = bytes.size();
  bytes.copy(mine.bytes, Payload::most_bytes);
  const std::vector<Payload> payloads = gather_values(state_->native, mine);
  std::size_t longest = 0;
  for (const Payload& payload : payloads)
    longest = std::max(longest, static_cast<std::size_t>(payload.size));
  std::vector<std::string> all;
  all.reserve(payloads.size());
  if (longest <= Payload::most_bytes) {
    for (const Payload& payload : payloads)
      all.emplace_back(payload.bytes, static_cast<std::size_t>(payload.size));
    return all;
  }
  std::string padded = bytes;
  padded.resize(longest);
  const at::Tensor rows = gather_rows(state_->native, as_bytes(padded.data(), longest));
  for (const Payload& payload : payloads)
    all.push_back(to_string(rows[static_cast<std::int64_t>(all.size())],
                            static_cast<std::size_t>(payload.size)));
  return all;
}

std::string
ProcessGroup::broadcast_bytes(const Intent& intent, const std::string& bytes, int root) {
  if (root < 0 || root >= size())
    throw UsageError(fmt::format("broadcast from rank {} in a group of {} ranks", root, size()));
  Intent with_root = intent;
  with_root.detail = fmt::format("from {}", root);
  const bool sends = rank() == root;
  const std::string mine = sends ? pack(static_cast<std::uint64_t>(bytes.size())) : std::string();
  const std::string theirs = exchange(with_root, mine).at(static_cast<std::size_t>(root));
  const auto length = static_cast<std::size_t>(unpack<std::uint64_t>(theirs));
  const CollectiveNote note(intent.operation, length);
  at::Tensor buffer = sends ? as_bytes(bytes.data(), length)
                            : at::empty({static_cast<std::int64_t>(length)}, at::kByte);
  if (length > 0)
    broadcast_unchecked({buffer}, root);
  return to_string(buffer, length);
}

void ProcessGroup::all_reduce(const at::Tensor& tensor, ReduceOp op) {
  check_tensor(tensor, "all_reduce");
  check_reducible(tensor.scalar_type(), op);
  agree({"all_reduce", shape_of(tensor), to_string(op)});
  if (tensor.numel() == 0)
    return;
  const at::NoGradGuard no_grad;
  const CollectiveNote note("all_reduce", tensor.nbytes());
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg();
  at::Tensor wire = plain.is_complex() ? at::view_as_real(plain) : plain;
  wire = wire.to(wire_type(wire)).contiguous();
  std::vector<at::Tensor> wires{wire};
  c10d::AllreduceOptions options;
  options.reduceOp = to_c10d(op);
  state_->native->allreduce(wires, options)->wait();
  if (op == ReduceOp::mean)
    wire.div_(size());
  if (!wire.is_alias_of(tensor))
    tensor.detach().copy_(plain.is_complex() ? at::view_as_complex(wire) : wire);
}

void ProcessGroup::broadcast(const at::Tensor& tensor, int root) {
  check_tensor(tensor, "broadcast");
  if (root < 0 || root >= size())
    throw UsageError(fmt::format("broadcast from rank {} in a group of {} ranks", root, size()));
  agree({"broadcast", shape_of(tensor), fmt::format("from {}", root)});
  const CollectiveNote note("broadcast", tensor.nbytes());
  broadcast_unchecked({tensor}, root);
}

void ProcessGroup::broadcast_unchecked(const std::vector<at::Tensor>& tensors, int root) {
  const at::NoGradGuard no_grad;
  c10d::BroadcastOptions options;
  options.rootRank = root;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0)
      continue;
    const at::Tensor target = tensor.detach();
    const at::Tensor plain = target.contiguous();
    std::vector<at::Tensor> wires{flat_bytes(plain)};
    state_->native->broadcast(wires, options)->wait();
    if (!plain.is_alias_of(target))
      target.copy_(plain);
  }
}

at::Tensor ProcessGroup::all_gather(const at::Tensor& tensor) {
  check_tensor(tensor, "all_gather");
  agree({"all_gather", shape_of(tensor), {}});
  const CollectiveNote note("all_gather", tensor.nbytes());
  std::vector<std::int64_t> sizes{size()};
  sizes.insert(sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
  if (tensor.numel() == 0)
    return at::empty(sizes, tensor.options());
  const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().contiguous();
  return gather_rows(state_->native, flat_bytes(plain)).view(tensor.scalar_type()).view(sizes);
}

void ProcessGroup::barrier() { agree({"barrier", {}, {}}); }

void ProcessGroup::share_failure(const char* operation, const std::exception_ptr& mine) {
  std::string text;
  try {
    if (mine)
      std::rethrow_exception(mine);
  } catch (const std::exception& error) {
    text = fmt::format("failed: {}", error.what());
  } catch (...) {
    text = "failed with something that is no std::exception";
  }
  const std::vector<std::string> texts = exchange({operation, {}, {}}, text);
  if (mine)
    std::rethrow_exception(mine);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank].empty())
      throw RendezvousError(fmt::format("{}: rank {} {}", operation, rank, texts[rank]));
}

} // namespace muster
