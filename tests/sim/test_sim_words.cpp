#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "sim/mutant.hpp"
#include "sim/scenario.hpp"
#include "sim/word_name.hpp"

namespace megamoe::sim {
namespace {

/// The cells of the rows of the table under "## Words" of PROTOCOL.md.
std::vector<std::vector<std::string>> word_rows() {
  std::ifstream file(MEGAMOE_SOURCE_DIR "/PROTOCOL.md");
  EXPECT_TRUE(file.is_open());
  std::vector<std::vector<std::string>> rows;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("## ", 0) == 0) inside = line == "## Words";
    if (!inside || line.rfind("| `", 0) != 0) continue;
    std::vector<std::string> cells;
    std::istringstream text(line.substr(1));
    for (std::string cell; std::getline(text, cell, '|');) {
      const std::size_t first = cell.find_first_not_of(' ');
      if (first == std::string::npos) continue;
      cells.push_back(cell.substr(first, cell.find_last_not_of(' ') - first + 1));
    }
    rows.push_back(cells);
  }
  return rows;
}

Problem any_problem() {
  Problem p;
  p.ranks = 3;
  p.experts = 6;
  p.top_k = 2;
  p.hidden = p.intermediate = 128;
  p.max_tokens_per_rank = 5;
  return p;
}

/// The names of all words that the layout has, as the simulator finds them in it.
std::set<std::string> layout_words() {
  const Problem p = any_problem();
  const WordMap map(p);
  std::set<std::string> names;
  for (std::size_t at = 0; at < symmetric_layout(p).x; at += 4)
    names.insert(name(map.symmetric_word(at).kind));
  for (std::size_t at = 0; at < local_layout(p).pool; at += 4)
    names.insert(name(map.local_word(at).kind));
  names.erase(name(WordKind::unknown));  // padding, and the values beside a claim
  return names;
}

TEST(SimWords, ProtocolDocumentHasARowForEveryWordOfTheLayout) {
  std::set<std::string> documented;
  for (const auto& row : word_rows()) {
    const std::string word = row[0].substr(1, row[0].size() - 2);
    EXPECT_TRUE(documented.insert(word).second) << word << " has two rows";
    EXPECT_EQ(row.size(), 8U) << word;
  }
  EXPECT_EQ(documented, layout_words());
}

TEST(SimWords, EveryRowNamesTestsThatExist) {
  for (const auto& row : word_rows()) {
    std::istringstream tests(row.back());
    for (std::string test; std::getline(tests, test, ',');) {
      test.erase(0, test.find_first_not_of(' '));
      EXPECT_TRUE(find_mutant(test).has_value() || find_scenario(test) != nullptr)
          << row[0] << " names '" << test << "'";
    }
  }
}

// A header's members cannot grow without a name here.
TEST(SimWords, EveryBufferOfTheLayoutIsNamed) {
  const Problem p = any_problem();
  const WordMap map(p);
  const auto check = [&](const BufferInfo& b, auto find) {
    const std::string buffer = b.name;
    if (buffer == "header" || buffer == "local header" || buffer == "words") return;
    EXPECT_EQ(buffer, name(find(b.offset).kind));
    EXPECT_EQ(find(b.offset).index, 0U) << buffer;
  };
  const std::size_t symmetric_end = symmetric_layout(p).x;
  walk_symmetric(p, [&](const BufferInfo& b) {
    if (b.offset < symmetric_end) check(b, [&](std::size_t at) { return map.symmetric_word(at); });
  });
  const std::size_t local_end = local_layout(p).pool;
  walk_local(p, [&](const BufferInfo& b) {
    if (b.offset < local_end) check(b, [&](std::size_t at) { return map.local_word(at); });
  });
}

}  // namespace
}  // namespace megamoe::sim
