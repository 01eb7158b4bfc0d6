#include <string>
#include <vector>

#include "catch.hpp"
#include "cli/python.hpp"
#include "folder.hpp"

using muster::cli::with_python;
using Words = std::vector<std::string>;

TEST_CASE("a Python script runs itself if it can, else under Python", "[python]") {
  const test::Folder folder;
  const test::Directory here(folder.path());
  const test::Variable unset("PYTHON_EXEC", nullptr);
  folder.write("train.py", "print()\n", 0755);
  folder.write("plain.py", "#!/usr/bin/python3\n", 0644);
  folder.write("own.py", "#!/usr/bin/python3\n", 0755);
  CHECK(with_python({"train.py", "-x"}) == Words{"python3", "-u", "train.py", "-x"});
  CHECK(with_python({"./plain.py"}) == Words{"python3", "-u", "./plain.py"});
  CHECK(with_python({"own.py", "a b"}) == Words{"./own.py", "a b"});
  CHECK(with_python({folder / "own.py"}) == Words{folder / "own.py"});
  CHECK(with_python({"none.py"}) == Words{"none.py"});
  CHECK(with_python({"train", "x.py"}) == Words{"train", "x.py"});
  const test::Variable chosen("PYTHON_EXEC", "/opt/python");
  CHECK(with_python({"train.py"}) == Words{"/opt/python", "-u", "train.py"});
}
