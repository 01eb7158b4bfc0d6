#pragma once

#include <string>
#include <vector>

namespace muster::cli {

/// What to run for a program: a Python script (*.py) that is not executable by a line of its own,
/// "#!...", is run by $PYTHON_EXEC, or python3, unbuffered. Anything else is left as it is.
std::vector<std::string> with_python(std::vector<std::string> argv);

/// The same for a Python module and its arguments.
std::vector<std::string> as_module(std::vector<std::string> argv);

} // namespace muster::cli
