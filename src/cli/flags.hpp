#pragma once

#include <span>
#include <string>
#include <string_view>

namespace muster::cli {

/// Where help shows a flag.
enum class Group { ranks, output, failure, nodes, other, no_effect, refused };

/// A flag of `muster run`. Parser, help and completion are all made from the one table of them.
struct Flag {
  const char* name; ///< "nproc-per-node": `--nproc-per-node` and `--nproc_per_node`
  Group group;
  const char* value = nullptr;    ///< what help calls its value; nullptr: a switch
  const char* help = "";          ///< one line
  char letter = 0;                ///< of the short form
  bool pet = false;               ///< torchrun reads it from PET_<NAME> as well
  const char* variable = nullptr; ///< read if neither the flag nor PET_<NAME> is given
  const char* same_as = nullptr;  ///< the flag that this one is another name of
  const char* candidates = "";    ///< values for completion, or "<file>" or "<directory>"
};

/// All flags, in the order of help.
std::span<const Flag> flags() noexcept;

/// The flag that is spelled so ("--log-dir", "--log_dir", "-t"), or nullptr.
const Flag* find_flag(std::string_view spelling) noexcept;

/// "--log-dir".
std::string to_string(const Flag& flag);

/// "--log_dir".
std::string with_underscores(const Flag& flag);

/// "PET_LOG_DIR".
std::string pet_variable(const Flag& flag);

} // namespace muster::cli
