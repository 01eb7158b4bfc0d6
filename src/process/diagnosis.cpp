#include "diagnosis.hpp"

#include <csignal>

namespace muster::process {

Diagnosis::Diagnosis(const ErrorFiles* errors) : errors_(errors), facts_(facts_of_this_host()) {}

void Diagnosis::explain(RankReport& rank, std::size_t i, bool killed_by_us) {
  if (errors_ && rank.exception_type.empty() && rank.message.empty())
    if (const auto error = parse_error_file(errors_->read(i))) {
      rank.exception_type = error->type;
      rank.message = error->message;
      rank.backtrace = Backtrace(error->traceback);
    }
  facts_.killed_by_us = killed_by_us;
  facts_.oom_killed = rank.status.signal() == SIGKILL && !killed_by_us && oom_.killed_since();
  if (facts_.oom_killed)
    facts_.memory_limit = oom_.limit();
  if (const std::string hint = hint_for(rank, facts_); !hint.empty())
    rank.hint = hint;
}

} // namespace muster::process
