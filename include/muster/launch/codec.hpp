#pragma once

#include <muster/launch/aggregate.hpp>
#include <muster/launch/blob.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <cereal/cereal.hpp>
#include <cereal/types/array.hpp>
#include <cereal/types/chrono.hpp>
#include <cereal/types/complex.hpp>
#include <cereal/types/deque.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/set.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/unordered_map.hpp>
#include <cereal/types/unordered_set.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>

namespace muster {

/// Encodes values into a Blob: a cereal output archive. The bytes are those of this machine.
/// Large pieces go to the file without a copy in between.
class Writer : public cereal::OutputArchive<Writer, cereal::AllowEmptyClassElision> {
public:
  explicit Writer(Blob blob);
  /// Appends to `memory` instead, which must outlive this object; finish() adds nothing there.
  explicit Writer(std::string& memory);
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer();

  /// Appends bytes. Throws SystemError.
  void write(const void* data, std::size_t size_bytes);
  /// Appends zeros until the position is a multiple of `alignment`.
  void align(std::size_t alignment);
  /// Appends length and checksum; only then a Reader accepts the blob. Throws SystemError.
  void finish();

private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Decodes what a Writer wrote: a cereal input archive.
class Reader : public cereal::InputArchive<Reader, cereal::AllowEmptyClassElision> {
public:
  /// Throws Error if the blob was not finished, so a half written one is never taken for whole.
  explicit Reader(Blob blob);
  /// Decodes from `memory`, which must outlive this object.
  explicit Reader(std::string_view memory);
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader();

  /// True if `blob` was finished.
  static bool complete(const Blob& blob);

  /// Takes the next bytes. Throws Error when there are fewer.
  void read(void* data, std::size_t size_bytes);
  /// Takes the next bytes, at most most_viewed_bytes, as they lie in this object until the next
  /// call.
  const void* view(std::size_t size_bytes);
  static constexpr std::size_t most_viewed_bytes = 256 * 1024;
  /// Throws Error unless `count` items of `size_bytes` are left.
  void require(std::uint64_t count, std::size_t size_bytes) const;
  /// Takes the next bytes without a copy: they stay mapped, writable and private to this process,
  /// while the pointer lives. Only where can_map().
  std::shared_ptr<void> map(std::size_t size_bytes);
  /// True for blobs, false for memory.
  bool can_map() const noexcept;
  void align(std::size_t alignment);
  /// Throws Error unless all bytes were taken and the checksum is right.
  void finish();

private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class T>
requires std::is_arithmetic_v<T>
void save(Writer& to, const T& value) { to.write(&value, sizeof value); }

template <class T>
requires std::is_arithmetic_v<T>
void load(Reader& from, T& value) { from.read(&value, sizeof value); }

template <class T>
void save(Writer& to, const cereal::BinaryData<T>& data) {
  to.write(data.data, static_cast<std::size_t>(data.size));
}

template <class T>
void load(Reader& from, cereal::BinaryData<T>& data) {
  from.read(data.data, static_cast<std::size_t>(data.size));
}

template <class Archive, class T>
requires std::is_same_v<Archive, Writer> || std::is_same_v<Archive, Reader>
void serialize(Archive& archive, cereal::NameValuePair<T>& pair) { archive(pair.value); }

template <class Archive, class T>
requires std::is_same_v<Archive, Writer> || std::is_same_v<Archive, Reader>
void serialize(Archive& archive, cereal::SizeTag<T>& tag) { archive(tag.size); }

namespace detail {

template <class T>
inline constexpr bool is_std_array = false;
template <class T, std::size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;

template <class T, class Archive>
concept HasMemberSerialize = cereal::traits::has_member_serialize<T, Archive>::value ||
    cereal::traits::has_member_save<T, Archive>::value ||
    cereal::traits::has_member_load<T, Archive>::value;

} // namespace detail

/// Large vectors of numbers grow piece by piece, where a resize would first fill them with zeros.
template <class T, class A>
requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) void load(Reader& from,
                                                                        std::vector<T, A>& values) {
  cereal::size_type count = 0;
  from(cereal::make_size_tag(count));
  from.require(count, sizeof(T));
  const auto size = static_cast<std::size_t>(count);
  constexpr std::size_t piece = Reader::most_viewed_bytes / sizeof(T);
  values.clear();
  if (size < piece) {
    values.resize(size);
    return from.read(values.data(), size * sizeof(T));
  }
  values.reserve(size);
  while (values.size() < size) {
    const std::size_t left = size - values.size();
    const std::size_t next = left < piece ? left : piece;
    const auto* first = static_cast<const T*>(from.view(next * sizeof(T)));
    values.insert(values.end(), first, first + next);
  }
}

/// Plain structs travel member by member, without a line from their author. A serialize()
/// function of theirs, member or free, is preferred.
template <class Archive, detail::PlainAggregate T>
requires((std::is_same_v<Archive, Writer> ||
          std::is_same_v<Archive, Reader>)&&!detail::is_std_array<T> &&
         !detail::HasMemberSerialize<T, Archive>) void serialize(Archive& archive, T& value) {
  detail::visit_members(value, [&](auto&... members) { archive(members...); });
}

/// True for types that can be sent to other processes: arithmetic types, enums, standard
/// containers and values, plain structs, and whatever has a cereal serialize() function.
template <class T>
concept Travels = !std::is_pointer_v<T> && !std::is_reference_v<T> &&
                  cereal::traits::is_output_serializable<T, Writer>::value &&
                  cereal::traits::is_input_serializable<T, Reader>::value;

/// Encodes `values` into a new blob.
template <class... T>
Blob encode(const char* name, const T&... values) {
  Blob blob = Blob::create(name);
  Writer writer(blob);
  (writer(values), ...);
  writer.finish();
  return blob;
}

/// Decodes one value. Throws Error if the blob does not hold exactly that.
template <class T>
T decode(const Blob& blob) {
  T value{};
  Reader reader(blob);
  reader(value);
  reader.finish();
  return value;
}

/// The same in a string.
template <class... T>
std::string pack(const T&... values) {
  std::string memory;
  Writer writer(memory);
  (writer(values), ...);
  writer.finish();
  return memory;
}

template <class T>
T unpack(std::string_view memory) {
  T value{};
  Reader reader(memory);
  reader(value);
  reader.finish();
  return value;
}

} // namespace muster

CEREAL_SETUP_ARCHIVE_TRAITS(muster::Reader, muster::Writer)
