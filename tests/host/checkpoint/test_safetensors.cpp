#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "files.hpp"
#include "host/checkpoint/checkpoint_files.hpp"
#include "host/checkpoint/safetensors.hpp"

namespace megamoe {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Opens a file with these bytes and gives the error's text.
std::string open_error(const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder / "a.safetensors";
  write_file(path, bytes);
  const std::string message = file_error_of([&] { const SafetensorsFile file(path); });
  EXPECT_THAT(message, HasSubstr(path));
  return message;
}

std::string header_error(const std::string& header, std::size_t data_bytes) {
  return open_error(safetensors_bytes(header, data_bytes));
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(Safetensors, ReadsWhatItWrote) {
  const TemporaryFolder folder;
  const std::vector<float> a{1.0F, -2.0F, 3.5F, 0.0F, 5.0F, 6.0F};
  const std::vector<std::int64_t> b{-1, 7};
  const std::vector<std::uint8_t> c{9, 8, 7};
  const std::vector<TensorToWrite> tensors{
      {"a", DType::f32, {2, 3}, bytes_of(a)},
      {"b.ids", DType::i64, {2}, bytes_of(b)},
      {"scalar", DType::u8, {}, std::as_bytes(std::span(c).first(1))},
      {"empty", DType::bf16, {0, 5}, {}},
      {"c", DType::f8_e8m0, {3, 1}, bytes_of(c)}};
  write_safetensors(folder / "x.safetensors", tensors, {{"format", "pt"}});

  const SafetensorsFile file(folder / "x.safetensors");
  EXPECT_THAT(file.names(), ElementsAre("a", "b.ids", "c", "empty", "scalar"));
  for (const TensorToWrite& written : tensors) {
    const TensorView read = file.at(written.name);
    EXPECT_EQ(read.dtype, written.dtype) << written.name;
    EXPECT_EQ(read.shape, written.shape) << written.name;
    ASSERT_EQ(read.bytes.size(), written.bytes.size()) << written.name;
    EXPECT_TRUE(std::equal(read.bytes.begin(), read.bytes.end(), written.bytes.begin()));
  }
  EXPECT_FALSE(file.find("d").has_value());
  EXPECT_THAT(file_error_of([&] { (void)file.at("d"); }),
              AllOf(HasSubstr("tensor d"), HasSubstr("found none among its 5 tensors")));
}

TEST(Safetensors, WriterReplacesTheFileWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const std::string path = folder / "y.safetensors";
  const std::vector<float> one{1.0F};
  const std::vector<float> two{2.0F};
  write_safetensors(path, std::vector<TensorToWrite>{{"v", DType::f32, {1}, bytes_of(one)}});
  const std::string before = read_file(path);
  const SafetensorsFile open_before(path);

  EXPECT_THAT(file_error_of(
                  [&] {
                    write_safetensors(
                        path, std::vector<TensorToWrite>{{"v", DType::f32, {3}, bytes_of(two)}});
                  },
                  ErrorCode::invalid_argument),
              AllOf(HasSubstr("tensor v"), HasSubstr("F32 [3] takes 12 bytes, given 4")));
  EXPECT_THAT(file_error_of(
                  [&] {
                    write_safetensors(
                        path, std::vector<TensorToWrite>{{"v", DType::f32, {1}, bytes_of(two)},
                                                         {"v", DType::f32, {1}, bytes_of(two)}});
                  },
                  ErrorCode::invalid_argument),
              HasSubstr("tensor v: given twice"));
  EXPECT_EQ(read_file(path), before);
  EXPECT_THAT(
      error_of([&] { write_safetensors(folder / "no/such/z.safetensors", {}); }, ErrorCode::system),
      AllOf(HasSubstr("no/such/z.safetensors"), HasSubstr("No such file")));

  write_safetensors(path, std::vector<TensorToWrite>{{"v", DType::f32, {1}, bytes_of(two)}});
  float old_value = 0;
  std::memcpy(&old_value, open_before.at("v").bytes.data(), sizeof old_value);
  EXPECT_EQ(old_value, 1.0F);  // the mapping of the replaced file stays valid
  const std::vector<std::string> left = [&] {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(folder.path()))
      names.push_back(file.path().filename().string());
    return names;
  }();
  EXPECT_THAT(left, ElementsAre("y.safetensors"));
}

TEST(Safetensors, DataBeginsAtAMultipleOfEight) {
  const TemporaryFolder folder;
  for (const std::string name : {"a", "ab", "abc", "abcd", "abcde"}) {
    const std::vector<float> value{1.0F};
    write_safetensors(folder / name,
                      std::vector<TensorToWrite>{{name, DType::f32, {1}, bytes_of(value)}});
    EXPECT_EQ(read_file(folder / name).size() % 8, 4U);
  }
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_THAT(file_error_of([&] { const SafetensorsFile f(folder / "none"); }),
              AllOf(HasSubstr("none"), HasSubstr("No such file")));
  EXPECT_THAT(file_error_of([&] { const SafetensorsFile f(folder.path()); }),
              HasSubstr("is not a regular file"));
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(file_error_of([&] { const SafetensorsFile f(pipe); }),
              HasSubstr("is not a regular file"));
}

TEST(Safetensors, RefusesABadLength) {
  EXPECT_THAT(open_error(""), HasSubstr("found only 0 bytes"));
  EXPECT_THAT(open_error("1234567"), HasSubstr("found only 7 bytes"));
  EXPECT_THAT(open_error(std::string(8, '\xff')), HasSubstr("found length 18446744073709551615"));
  EXPECT_THAT(open_error(std::string("\x10\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("expected a header of 16 bytes, found 2 bytes"));
  EXPECT_THAT(header_error("", 0), HasSubstr("begins with '{'"));
  EXPECT_THAT(header_error(" {}", 0), HasSubstr("begins with '{'"));
}

TEST(Safetensors, RefusesMalformedJson) {
  EXPECT_THAT(header_error("{", 0), HasSubstr("malformed JSON"));
  EXPECT_THAT(header_error("{\"a\":\xff}", 0), HasSubstr("malformed JSON"));
  const std::string deep = "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_THAT(header_error(deep, 0), HasSubstr("nested 100001 deep, expected at most 8"));
  const std::string a = entry("a", "U8", "[1]", "[0,1]");
  EXPECT_THAT(header_error("{" + a + "," + a + "}", 1), HasSubstr("key \"a\" occurs twice"));
  EXPECT_THAT(header_error("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 1),
              HasSubstr("key \"dtype\" occurs twice"));
}

TEST(Safetensors, RefusesBadDescriptions) {
  EXPECT_THAT(header_error("{\"a\":3}", 0),
              AllOf(HasSubstr("tensor a"), HasSubstr("expected an object, found 3")));
  EXPECT_THAT(header_error("{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1),
              HasSubstr("expected a member \"dtype\", found none"));
  EXPECT_THAT(header_error("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", 1),
              HasSubstr("dtype: expected a string, found 1"));
  EXPECT_THAT(header_error("{" + entry("a", "U8", "1", "[0,1]") + "}", 1),
              HasSubstr("shape: expected an array of at most 16 integers, found 1"));
  EXPECT_THAT(header_error("{" + entry("a", "U8", "[-1]", "[0,1]") + "}", 1),
              HasSubstr("shape: expected integers from 0 to 2^63 - 1, found -1"));
  EXPECT_THAT(header_error("{" + entry("a", "U8", "[1.0]", "[0,1]") + "}", 1),
              HasSubstr("found 1.0"));
  EXPECT_THAT(header_error("{" + entry("a", "U8", "[18446744073709551615]", "[0,1]") + "}", 1),
              HasSubstr("found 18446744073709551615"));
  EXPECT_THAT(header_error("{" + entry("a", "U8", "[1]", "[0]") + "}", 1),
              HasSubstr("data_offsets: expected an array of 2 integers, found an array of 1"));
  EXPECT_THAT(header_error("{" + entry("a", "U8", "[1]", "[0,\"1\"]") + "}", 1),
              HasSubstr("data_offsets: expected integers from 0 to 2^63 - 1, found \"1\""));
}

TEST(Safetensors, RefusesBadRanges) {
  EXPECT_THAT(header_error("{" + entry("a", "F32", "[2,3]", "[0,24]") + "}", 20),
              AllOf(HasSubstr("expected a range within 20 bytes of data, found [0, 24]"),
                    HasSubstr("may be truncated")));
  EXPECT_THAT(header_error("{" + entry("a", "U8", "[1]", "[1,0]") + "}", 1),
              HasSubstr("found [1, 0]"));
  EXPECT_THAT(header_error("{" + entry("a", "F32", "[2,3]", "[0,20]") + "}", 20),
              HasSubstr("expected 24 bytes for F32 [2, 3], found data_offsets [0, 20]"));
  EXPECT_THAT(header_error("{" + entry("a", "F32", "[4611686018427387904,4]", "[0,0]") + "}", 0),
              HasSubstr("expected more than 2^64 bytes for F32"));
  EXPECT_THAT(
      header_error(
          "{" + entry("a", "U8", "[2]", "[0,2]") + "," + entry("b", "U8", "[2]", "[1,3]") + "}", 3),
      AllOf(HasSubstr("tensor b"), HasSubstr("bytes [1, 3] overlap those of tensor a")));
  EXPECT_THAT(header_error("{" + entry("a", "U8", "[1]", "[1,2]") + "}", 2),
              HasSubstr("expected its bytes to begin at 0, found 1"));
  const std::string header = "{" + entry("a", "U8", "[1]", "[0,1]") + "}";
  EXPECT_THAT(header_error(header, 3),
              HasSubstr("expected " + std::to_string(header.size() + 9) + " bytes by its header"));
}

TEST(Safetensors, RefusesAnUnknownDtypeOnlyWhenAskedForIt) {
  const TemporaryFolder folder;
  write_file(folder / "a", safetensors_bytes("{" + entry("a", "F6_E3M2", "[4]", "[0,3]") + "," +
                                                 entry("b", "U8", "[1]", "[3,4]") + "}",
                                             4));
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.at("b").bytes.size(), 1U);
  EXPECT_THAT(file_error_of([&] { (void)file.find("a"); }),
              AllOf(HasSubstr("tensor a"), HasSubstr("expected one of F32, F16, BF16, F8_E4M3"),
                    HasSubstr("found dtype F6_E3M2")));
}

TEST(Safetensors, ExpectNamesBothSides) {
  const TensorView view{
      .name = "w", .file = "f", .dtype = DType::i32, .shape = {2, 3}, .bytes = {}};
  const std::vector<std::int64_t> shape{2, 3};
  EXPECT_NO_THROW(expect(view, {DType::i64, DType::i32}, shape));
  EXPECT_EQ(file_error_of([&] {
              expect(view, {DType::f32, DType::bf16}, shape);
            }),
            "file f: tensor w: expected F32 or BF16 [2, 3], found I32 [2, 3]");
  const std::vector<std::int64_t> other{3, 2};
  EXPECT_EQ(file_error_of([&] { expect(view, {DType::i32}, other); }),
            "file f: tensor w: expected I32 [3, 2], found I32 [2, 3]");
}

class CheckpointFiles : public ::testing::Test {
 protected:
  void write_shard(const std::string& file, const std::string& tensor) {
    const std::vector<float> value{static_cast<float>(tensor.size())};
    write_safetensors(folder_ / file,
                      std::vector<TensorToWrite>{{tensor, DType::f32, {1}, bytes_of(value)}});
  }
  void write_index(const std::string& text) {
    write_file(folder_ / "model.safetensors.index.json", text);
  }
  std::string index_error(const std::string& text) {
    write_index(text);
    return file_error_of([&] { const Checkpoint c(folder_.path()); });
  }
  TemporaryFolder folder_;
};

TEST_F(CheckpointFiles, OpensAFileAFolderAndShards) {
  write_shard("model.safetensors", "one");
  EXPECT_TRUE(Checkpoint(folder_.path()).contains("one"));
  Checkpoint single(folder_ / "model.safetensors");
  EXPECT_EQ(single.at("one").shape, std::vector<std::int64_t>{1});
  EXPECT_EQ(single.folder(), folder_.path());

  write_shard("s1.safetensors", "two");
  write_shard("s2.safetensors", "three");
  write_index(R"({"metadata": {"total_size": 8},
                  "weight_map": {"two": "s1.safetensors", "three": "s2.safetensors"}})");
  for (const std::string& path : {folder_.path(), folder_ / "model.safetensors.index.json"}) {
    Checkpoint sharded(path);
    EXPECT_TRUE(sharded.contains("two"));
    EXPECT_EQ(sharded.at("two").file, folder_ / "s1.safetensors");
    EXPECT_EQ(sharded.at("three").file, folder_ / "s2.safetensors");
    EXPECT_FALSE(sharded.contains("one"));
    EXPECT_FALSE(sharded.find("one").has_value());
    EXPECT_THAT(file_error_of([&] { (void)sharded.at("one"); }),
                AllOf(HasSubstr("checkpoint " + path), HasSubstr("tensor one")));
  }
}

TEST_F(CheckpointFiles, RefusesBadFoldersAndIndexes) {
  EXPECT_THAT(
      file_error_of([&] { const Checkpoint c(folder_.path()); }),
      HasSubstr("expected model.safetensors.index.json or model.safetensors, found neither"));
  EXPECT_THAT(file_error_of([&] { const Checkpoint c(folder_ / "none"); }),
              HasSubstr("no such file or folder"));
  EXPECT_THAT(index_error("[]"), HasSubstr("an object with an object \"weight_map\""));
  EXPECT_THAT(index_error("{}"), HasSubstr("an object with an object \"weight_map\""));
  EXPECT_THAT(index_error("{\"weight_map\": 3}"), HasSubstr("\"weight_map\""));
  EXPECT_THAT(index_error("{\"weight_map\": {}}"), HasSubstr("found none"));
  EXPECT_THAT(index_error("{\"weight_map\": {\"a\": 3}}"),
              AllOf(HasSubstr("tensor a"), HasSubstr("found 3")));
  for (const char* outside : {"../x.safetensors", "/etc/passwd", "a/b", "..", ""}) {
    EXPECT_THAT(index_error("{\"weight_map\": {\"a\": \"" + std::string(outside) + "\"}}"),
                HasSubstr("expected the name of a file in the same folder"));
  }
  EXPECT_THAT(index_error("{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}"),
              HasSubstr("key \"a\" occurs twice"));
}

TEST_F(CheckpointFiles, NamesTheShardThatIsMissingOrLacksATensor) {
  write_shard("s1.safetensors", "two");
  write_index(R"({"weight_map": {"two": "s1.safetensors", "three": "s1.safetensors",
                                 "four": "gone.safetensors"}})");
  Checkpoint checkpoint(folder_.path());
  EXPECT_THAT(file_error_of([&] { (void)checkpoint.find("three"); }),
              AllOf(HasSubstr(folder_ / "s1.safetensors"), HasSubstr("tensor three")));
  EXPECT_THAT(file_error_of([&] { (void)checkpoint.find("four"); }),
              AllOf(HasSubstr(folder_ / "gone.safetensors"), HasSubstr("No such file")));
}

}  // namespace
}  // namespace megamoe
