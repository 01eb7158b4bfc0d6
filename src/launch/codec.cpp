#include <muster/launch/codec.hpp>
#include <muster/launch/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster {

namespace {

constexpr std::size_t buffer_bytes = 64 * 1024; // smaller pieces are gathered up to this
constexpr std::size_t chunk_bytes = 256 * 1024; // hashed while the cache still holds it
constexpr std::uint64_t magic = 0x3152'5453'554d'0001;

/// Stands at the end of a finished blob.
struct Trailer {
  std::uint64_t length;
  std::uint64_t checksum;
  std::uint64_t magic;
};

class Checksum {
public:
  Checksum() : state_(XXH3_createState()) { XXH3_64bits_reset(state_); }
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  ~Checksum() { XXH3_freeState(state_); }

  void add(const void* data, std::size_t size) { XXH3_64bits_update(state_, data, size); }
  std::uint64_t value() const { return XXH3_64bits_digest(state_); }

private:
  XXH3_state_t* state_;
};

void write_all(int fd, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t done = ::write(fd, data, size);
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      throw SystemError("writing to a memory file", errno);
    data += done;
    size -= static_cast<std::size_t>(done);
  }
}

void read_all(int fd, char* data, std::size_t size, std::uint64_t offset) {
  while (size > 0) {
    const ssize_t done = ::pread(fd, data, size, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      throw SystemError("reading a memory file", done < 0 ? errno : EIO);
    data += done;
    size -= static_cast<std::size_t>(done);
    offset += static_cast<std::uint64_t>(done);
  }
}

std::optional<Trailer> trailer_of(const Blob& blob) {
  const std::uint64_t size = blob.size_bytes();
  Trailer trailer{};
  if (size < sizeof trailer)
    return std::nullopt;
  read_all(blob.fd(), reinterpret_cast<char*>(&trailer), sizeof trailer, size - sizeof trailer);
  const bool whole = trailer.magic == magic && trailer.length == size - sizeof trailer;
  return whole ? std::optional(trailer) : std::nullopt;
}

} // namespace

struct Writer::State {
  Blob blob;
  std::string* memory = nullptr;
  std::string buffer;
  std::uint64_t position = 0;
  Checksum checksum;

  void put(const char* data, std::size_t size) {
    checksum.add(data, size);
    write_all(blob.fd(), data, size);
  }

  void flush() {
    put(buffer.data(), buffer.size());
    buffer.clear();
  }
};

Writer::Writer(Blob blob) : OutputArchive(this), state_(std::make_unique<State>()) {
  state_->blob = std::move(blob);
}

Writer::Writer(std::string& memory) : OutputArchive(this), state_(std::make_unique<State>()) {
  state_->memory = &memory;
}

Writer::~Writer() = default;

void Writer::write(const void* data, std::size_t size) {
  if (size == 0)
    return; // there may be no buffer to take nothing from
  State& state = *state_;
  const char* bytes = static_cast<const char*>(data);
  state.position += size;
  if (state.memory) {
    state.memory->append(bytes, size);
    return;
  }
  if (state.buffer.size() + size > buffer_bytes)
    state.flush();
  if (size < buffer_bytes) {
    state.buffer.append(bytes, size);
    return;
  }
  for (std::size_t done = 0; done < size; done += chunk_bytes)
    state.put(bytes + done, std::min(chunk_bytes, size - done));
}

void Writer::align(std::size_t alignment) {
  static constexpr char zeros[64] = {};
  while (state_->position % alignment != 0)
    write(zeros, std::min(sizeof zeros, alignment - state_->position % alignment));
}

void Writer::finish() {
  State& state = *state_;
  if (state.memory)
    return;
  state.flush();
  const Trailer trailer{state.position, state.checksum.value(), magic};
  write_all(state.blob.fd(), reinterpret_cast<const char*>(&trailer), sizeof trailer);
}

struct Reader::State {
  Blob blob;
  std::string_view memory;
  std::string buffer;             // read ahead from the file ...
  std::size_t taken = 0;          // ... of which this much was taken
  std::string piece;              // what view() shows
  std::uint64_t position = 0;     // of the next byte to take
  std::uint64_t length = 0;       // of all bytes
  std::uint64_t expected_sum = 0; // of a file
  Checksum checksum;

  std::size_t ahead() const { return buffer.size() - taken; }

  void refill() {
    const std::uint64_t left = length - position;
    buffer.resize(static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer_bytes)));
    taken = 0;
    read_all(blob.fd(), buffer.data(), buffer.size(), position);
  }

  /// From the read-ahead buffer; at most what it holds.
  std::size_t take_buffered(char* to, std::size_t size) {
    const std::size_t count = std::min(size, ahead());
    std::memcpy(to, buffer.data() + taken, count);
    checksum.add(to, count);
    taken += count;
    position += count;
    return count;
  }

  void take_direct(char* to, std::size_t size) {
    read_all(blob.fd(), to, size, position);
    checksum.add(to, size);
    position += size;
  }
};

Reader::Reader(Blob blob) : InputArchive(this), state_(std::make_unique<State>()) {
  const auto trailer = trailer_of(blob);
  if (!trailer)
    throw Error("encoded bytes end early: their writer never finished");
  state_->blob = std::move(blob);
  state_->length = trailer->length;
  state_->expected_sum = trailer->checksum;
}

Reader::Reader(std::string_view memory) : InputArchive(this), state_(std::make_unique<State>()) {
  state_->memory = memory;
  state_->length = memory.size();
}

Reader::~Reader() = default;

bool Reader::complete(const Blob& blob) { return trailer_of(blob).has_value(); }

void Reader::require(std::uint64_t count, std::size_t size) const {
  if (size > 0 && count > (state_->length - state_->position) / size)
    throw Error("encoded bytes end early: the reader's type is not the writer's");
}

const void* Reader::view(std::size_t size) {
  std::string& piece = state_->piece;
  piece.resize(size);
  read(piece.data(), size);
  return piece.data();
}

void Reader::read(void* data, std::size_t size) {
  State& state = *state_;
  require(1, size);
  if (size == 0)
    return; // there may be no buffer to put nothing in
  char* to = static_cast<char*>(data);
  if (state.blob.fd() < 0) {
    std::memcpy(to, state.memory.data() + state.position, size);
    state.position += size;
    return;
  }
  while (size > 0) {
    std::size_t count = state.take_buffered(to, size);
    if (count == 0 && size < buffer_bytes) {
      state.refill();
      continue;
    }
    if (count == 0)
      state.take_direct(to, count = std::min(size, chunk_bytes));
    to += count;
    size -= count;
  }
}

std::shared_ptr<void> Reader::map(std::size_t size) {
  State& state = *state_;
  if (size > state.length - state.position || state.blob.fd() < 0)
    throw Error("encoded bytes end early: the reader's type is not the writer's");
  if (size == 0)
    return nullptr;
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t start = state.position / page * page;
  const auto skip = static_cast<std::size_t>(state.position - start);
  void* base = ::mmap(nullptr,
                      skip + size,
                      PROT_READ | PROT_WRITE,
                      MAP_PRIVATE,
                      state.blob.fd(),
                      static_cast<off_t>(start));
  if (base == MAP_FAILED)
    throw SystemError("mapping a memory file", errno);
  ::madvise(base, skip + size, MADV_POPULATE_READ); // before Linux 5.14: page by page, later
  std::shared_ptr<void> mapping(base, [n = skip + size](void* address) { ::munmap(address, n); });
  std::shared_ptr<void> bytes(mapping, static_cast<char*>(base) + skip);
  state.checksum.add(bytes.get(), size);
  state.position += size;
  state.taken += std::min(size, state.ahead());
  if (state.ahead() == 0)
    state.buffer.clear(), state.taken = 0;
  return bytes;
}

bool Reader::can_map() const noexcept { return state_->blob.fd() >= 0; }

void Reader::align(std::size_t alignment) {
  char skipped[64];
  while (state_->position % alignment != 0)
    read(skipped, std::min(sizeof skipped, alignment - state_->position % alignment));
}

void Reader::finish() {
  const State& state = *state_;
  if (state.position != state.length)
    throw Error("encoded bytes are left over: the reader's type is not the writer's");
  if (state.blob.fd() >= 0 && state.checksum.value() != state.expected_sum)
    throw Error("encoded bytes are damaged: their checksum is wrong");
}

} // namespace muster
