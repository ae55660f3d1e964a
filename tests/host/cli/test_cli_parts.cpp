#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/models.hpp"
#include "cli/numbers.hpp"
#include "cli/progress.hpp"
#include "cli/suggest.hpp"
#include "cli/table.hpp"
#include "cli/verbs.hpp"
#include "megamoe/error.hpp"

namespace megamoe::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "accepted";
}

TEST(Numbers, IntegersAreReadWhole) {
  EXPECT_EQ(parse_integer("--ranks", "72", 1, 72), 72);
  EXPECT_EQ(parse_integer("--ranks", "0072", 1, 72), 72);
  EXPECT_EQ(parse_integer("--x", "-3", -5, 5), -3);
  for (const char* bad : {"", " 1", "1 ", "+1", "0x10", "1e3", "1.0", "1,2", "one", "--1", "1\n"}) {
    EXPECT_EQ(refusal([&] { parse_integer("--ranks", bad, 1, 72); }),
              "--ranks = '" + std::string(bad) + "' is not a whole number");
  }
}

TEST(Numbers, RangesAndOverflow) {
  EXPECT_EQ(refusal([] { parse_integer("--ranks", "0", 1, 72); }), "--ranks = 0 is outside 1..72");
  EXPECT_EQ(refusal([] { parse_integer("--ranks", "73", 1, 72); }),
            "--ranks = 73 is outside 1..72");
  EXPECT_EQ(refusal([] { parse_integer("--ranks", "99999999999999999999", 1, 72); }),
            "--ranks = 99999999999999999999 is outside 1..72");
  EXPECT_EQ(refusal([] { parse_integer("--ranks", "99999999999999999999x", 1, 72); }),
            "--ranks = '99999999999999999999x' is not a whole number");
  EXPECT_EQ(refusal([] { parse_integer("--ranks", "4294967297", 1, 72); }),
            "--ranks = 4294967297 is outside 1..72");
}

TEST(Numbers, Seeds) {
  EXPECT_EQ(parse_seed("--seed", "18446744073709551615"), 18446744073709551615U);
  EXPECT_THAT(refusal([] { parse_seed("--seed", "18446744073709551616"); }),
              HasSubstr("is outside 0..18446744073709551615"));
  EXPECT_THAT(refusal([] { parse_seed("--seed", "-1"); }), HasSubstr("'-1' is not a whole number"));
}

TEST(Numbers, Reals) {
  EXPECT_DOUBLE_EQ(parse_real("--deadline", "0.25", 0, 10), 0.25);
  EXPECT_DOUBLE_EQ(parse_real("--deadline", "1e1", 0, 10), 10);
  for (const char* bad : {"", "nan", "1s", " 1", "1 ", "0x1"}) {
    EXPECT_THAT(refusal([&] { parse_real("--deadline", bad, 0, 10); }),
                HasSubstr("is not a number"))
        << bad;
  }
  for (const char* bad : {"inf", "-inf", "10.5", "-1", "1e999"}) {
    EXPECT_THAT(refusal([&] { parse_real("--deadline", bad, 0, 10); }),
                HasSubstr("is outside 0..10"))
        << bad;
  }
}

TEST(Numbers, Lists) {
  EXPECT_THAT(parse_integer_list("--tokens", "0,8,48,192", 0, 200), ElementsAre(0, 8, 48, 192));
  EXPECT_THAT(parse_integer_list("--tokens", "5", 0, 200), ElementsAre(5));
  for (const char* bad : {"", ",", "1,", ",1", "1,,2", "1;2", "1, 2"}) {
    EXPECT_THAT(refusal([&] { parse_integer_list("--tokens", bad, 0, 200); }),
                HasSubstr("is not a whole number"))
        << bad;
  }
  EXPECT_EQ(refusal([] { parse_integer_list("--tokens", "1,-1", 0, 200); }),
            "--tokens = -1 is outside 0..200");
}

TEST(Suggest, Distance) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("rnaks", "ranks"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(Suggest, NearNamesElseAll) {
  const std::vector<std::string_view> names = {"plan", "run"};
  EXPECT_EQ(suggestion("paln", names), "; did you mean plan?");
  EXPECT_EQ(suggestion("PLAN", names), "; did you mean plan?");
  EXPECT_EQ(suggestion("teapot", names), "; known: plan, run");
  EXPECT_EQ(close_suggestion("teapot", names), "");
  EXPECT_EQ(suggestion(std::string(100000, 'p'), names), "; known: plan, run");
}

TEST(Table, AlignsColumns) {
  Table table({"name", "two\nlines", "x"});
  table.add({"a", "1", "10"});
  table.add({"long name", "12345678", "9"});
  EXPECT_EQ(table.text(),
            "                two\n"
            "name          lines   x\n"
            "a                 1  10\n"
            "long name  12345678   9\n");
  EXPECT_THROW(table.add({"a"}), std::logic_error);
}

TEST(Table, Numbers) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.123456), "0.1235");
  EXPECT_EQ(short_number(4123.4), "4123");
  EXPECT_EQ(short_number(412.34), "412.3");
  EXPECT_EQ(short_number(1e15), "1000000000000000");
  EXPECT_EQ(short_number(100), "100");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(3.0 * (1 << 30)), "3 GiB");
}

TEST(Progress, DrawsOnATerminalAndWipesItself) {
  std::ostringstream terminal;
  {
    Progress progress(terminal, true, "check", 4);
    progress.advance(2);
  }
  const std::string text = terminal.str();
  EXPECT_THAT(text, HasSubstr("\rcheck [..............................] 0/4"));
  EXPECT_EQ(text.substr(text.size() - 2), " \r");
}

TEST(Progress, IsSilentElsewhere) {
  std::ostringstream file;
  {
    Progress progress(file, false, "check", 4);
    progress.advance(4);
  }
  EXPECT_EQ(file.str(), "");
}

TEST(OneLine, SpellsControlCharacters) {
  EXPECT_EQ(one_line("a\nb\x1b[31m\x7f"), "a\\x0ab\\x1b[31m\\x7f");
}

std::map<std::string, std::vector<std::string>> csv_rows() {
  std::ifstream file(MEGAMOE_SOURCE_DIR "/tools/models.csv");
  std::map<std::string, std::vector<std::string>> rows;
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line,
            "model,hidden,intermediate,experts,top_k,shared_experts,activation,clamp,"
            "routed_scaling");
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::stringstream stream(line + ",");
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    EXPECT_EQ(cells.size(), 9U) << line;
    rows[cells[0]] = cells;
  }
  return rows;
}

template <class Value>
void expect_field(const std::optional<Value>& field, const std::string& cell) {
  EXPECT_EQ(field.has_value(), !cell.empty());
  if (field && !cell.empty()) {
    EXPECT_EQ(*field, static_cast<Value>(std::stod(cell)));
  }
}

TEST(Models, TheCompiledTableIsTheFile) {
  const auto rows = csv_rows();
  EXPECT_EQ(models().size(), rows.size());
  for (const ModelRow& row : models()) {
    SCOPED_TRACE(row.name);
    const auto it = rows.find(std::string(row.name));
    ASSERT_NE(it, rows.end());
    const std::vector<std::string>& cell = it->second;
    EXPECT_EQ(row.hidden, std::stoi(cell[1]));
    EXPECT_EQ(row.intermediate, std::stoi(cell[2]));
    EXPECT_EQ(row.experts, std::stoi(cell[3]));
    EXPECT_EQ(row.top_k, std::stoi(cell[4]));
    expect_field(row.shared_experts, cell[5]);
    EXPECT_EQ(name(row.activation), cell[6]);
    expect_field(row.clamp, cell[7]);
    expect_field(row.routed_scaling, cell[8]);
  }
}

TEST(Models, UnknownNamesGetNearOnes) {
  EXPECT_EQ(refusal([] { find_model("deepseek-v33"); }),
            "unknown model 'deepseek-v33'; did you mean deepseek-v3?");
  EXPECT_THAT(refusal([] { find_model("gpt-oss"); }), HasSubstr("gpt-oss-120b, gpt-oss-20b"));
  EXPECT_THAT(refusal([] { find_model("llama"); }), HasSubstr("known: deepseek-v3, "));
}

TEST(Models, Activations) {
  EXPECT_EQ(activation_of(find_model("deepseek-v3")), Activation{});
  EXPECT_EQ(activation_of(find_model("deepseek-v4-pro")), Activation{.clamp = 10.0F});
  EXPECT_EQ(activation_of(find_model("gpt-oss-20b")), swiglu_oai(7.0F));
  EXPECT_EQ(activation_of(find_model("kimi-k3-latent")).linear_beta, 25.0F);
}

}  // namespace
}  // namespace megamoe::cli
